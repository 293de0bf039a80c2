"""Builds the package without any other package (PEP 517).

    python3 -m pip wheel --no-deps ./python        # or, without pip:
    python3 python/build_backend.py FOLDER

The wheel holds the C library if SEEKLESS_ORDER_LIBRARY names it while the wheel is built. It is for this
platform then; otherwise it is for every platform, and finds the library of the system.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "seekless_order"
LIBRARY = "libseekless_order.so"
# The same files make the same archive.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def _field(name: str) -> str:
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'^{name} = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"pyproject.toml has no {name}")
    return found.group(1)


def _metadata() -> str:
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {_field('name')}\n"
        f"Version: {_field('version')}\n"
        f"Summary: {_field('description')}\n"
        f"Requires-Python: {_field('requires-python')}\n"
        "License: Apache-2.0 OR MIT\n"
    )


def _sources() -> list[Path]:
    return sorted(p for p in (HERE / PACKAGE).iterdir() if p.suffix == ".py" or p.name == "py.typed")


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel into a folder, and returns its name."""
    files = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in _sources()}
    tag, pure = "py3-none-any", "true"
    library = os.environ.get("SEEKLESS_ORDER_LIBRARY")
    if library:
        files[f"{PACKAGE}/{LIBRARY}"] = Path(library).read_bytes()
        tag, pure = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform()), "false"
    stem = f"{PACKAGE}-{_field('version')}"
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: {PACKAGE}\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    )
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, content in files.items():
            entry = zipfile.ZipInfo(member, ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Writes the source archive into a folder, and returns its name."""
    stem = f"{PACKAGE}-{_field('version')}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        sources = [(path, f"{PACKAGE}/{path.name}") for path in _sources()]
        sources += [(HERE / name, name) for name in ("pyproject.toml", "build_backend.py")]
        members = [(name, path.read_bytes()) for path, name in sources] + [("PKG-INFO", _metadata().encode())]
        for name, content in members:
            member = tarfile.TarInfo(f"{stem}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    name = f"{stem}.tar.gz"
    (Path(sdist_directory) / name).write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return name


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build_backend.py FOLDER")
    print(build_wheel(sys.argv[1]))
