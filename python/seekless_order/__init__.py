"""Files in the order in which their disk reads them best, read ahead of the program.

A hard disk seeks once a file if a program takes files in the order of names. In the order of their addresses
they are one sweep::

    import seekless_order

    for path, offset, length in seekless_order.order(["/srv/photos"], folders=True):
        with open(path, "rb") as file:
            use(file.read())

No daemon and no privilege is needed. Where a daemon of Seekless answers, it reads, in one order with all else
that it reads from the disk. The package is a layer over the C library ``libseekless_order.so``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from typing import Callable, Dict, Iterable, Iterator, NamedTuple, Optional, Union

from . import _library
from ._library import LibraryNotFound

__all__ = ["Failure", "Item", "LibraryNotFound", "Ordered", "order"]
__version__ = "0.2.0"

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_log = logging.getLogger(__name__)

# What `os.fsdecode` goes by.
_ENCODING = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())

#: Bytes read ahead unless ``window`` says otherwise.
WINDOW = 64 << 20


class Item(NamedTuple):
    """A file, or a range of one, whose turn it is."""

    #: As it was listed; bytes that are no text are escaped as ``os.fsdecode`` does.
    path: str
    #: Where the range begins; 0 of a whole file.
    offset: int
    #: Bytes of the range, when the file was looked up; 0 of a folder.
    length: int


class Failure(NamedTuple):
    """A path that cannot be put in order."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}"


def order(
    paths: Iterable[AnyPath],
    *,
    window: int = WINDOW,
    range_max: int = 0,
    by: str = "address",
    folders: bool = False,
    batch: int = 100_000,
    daemon: bool = True,
    on_failure: Optional[Callable[[Failure], None]] = None,
) -> "Ordered":
    """Items of these paths, in the order of their disk.

    ``window``: most bytes that are read ahead of what was taken; 0: nothing is read ahead.
    ``range_max``: a longer file comes as several ranges, one after the other; 0: every file is one item.
    ``by``: ``"address"`` (by inode where there is none), ``"inode"``, or ``"listed"`` for the order given.
    ``folders``: a folder stands for the regular files below it.
    ``batch``: most paths that are sorted together; memory is bounded by it.
    ``daemon``: a daemon of Seekless reads, where one answers; without one this process does.
    ``on_failure``: called with each path that cannot be put in order. Without it, each is a line of the log
    (``logging``), at the level of warnings.

    Raises LibraryNotFound if the C library is not here, ValueError if an option is out of range,
    TypeError if ``paths`` is one path instead of several.
    """
    if isinstance(paths, (str, bytes)):
        # A string is a sequence of strings: its letters would be taken for paths, and `/` for one of them.
        raise TypeError(f"paths={paths!r}: give a list of paths, not one path")
    if by not in _library.BY:
        raise ValueError(f"by={by!r}: {', '.join(_library.BY)}")
    options = {
        "window": window,
        "range_max": range_max,
        "by": _library.BY[by],
        "folders": int(folders),
        "batch": batch,
        "daemon": int(daemon),
    }
    return Ordered(iter(paths), options, on_failure or _warn)


class Ordered(Iterator[Item]):
    """See :func:`order`. Several threads may take items from it."""

    #: How the item given last came to its turn: ``"address"``, ``"inode"`` or ``"as listed"``.
    how: Optional[str]
    #: Items so far, by how they came to their turn.
    counts: Dict[str, int]
    #: What brought the bytes of the item given last into memory: ``"daemon"``, ``"itself"`` (this process) or
    #: ``"nobody"`` (it has none, or they are left to the program).
    read_by: Optional[str]
    #: Items so far, by what brought them into memory.
    readers: Dict[str, int]
    #: Paths that could not be put in order so far.
    failures: int

    def __init__(
        self, paths: Iterator[AnyPath], options: Dict[str, int], on_failure: Callable[[Failure], None]
    ) -> None:
        self.how = None
        self.counts = {}
        self.read_by = None
        self.readers = {}
        self.failures = 0
        self._paths = paths
        self._on_failure = on_failure
        self._item = _library.Item()
        self._by_reference = ctypes.byref(self._item)
        # Taken again by a call of `on_failure` that takes the next item itself.
        self._lock = threading.RLock()
        self._handle: Optional[int] = None
        self._lib = _library.library()
        self._handle = self._lib.seekless_order_new()
        for name, value in options.items():
            fits = 0 <= value < 1 << 64
            if not fits or self._lib.seekless_order_set(self._handle, _library.OPTIONS[name], value) != 0:
                self.close()
                raise ValueError(f"{name}={value} is out of range")

    def __iter__(self) -> "Ordered":
        return self

    def __next__(self) -> Item:
        with self._lock:
            while self._handle is not None:
                status = self._lib.seekless_order_next(self._handle, self._by_reference)
                if status == _library.ITEM:
                    return self._given()
                if status == _library.FAILURE:
                    self._failed(os.fsdecode(self._item.path), os.fsdecode(self._item.reason))
                elif status == _library.END:
                    if not self._add():
                        self.close()
                elif status == _library.E_FORKED:
                    raise RuntimeError("made by another process: after a fork, order the files anew")
                else:
                    raise OSError("libseekless_order cannot go on: no thread can be started")
            raise StopIteration

    def close(self) -> None:
        """Ends the reading ahead. Done at the end of the items as well."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self._lib.seekless_order_free(handle)

    def __enter__(self) -> "Ordered":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _given(self) -> Item:
        item = self._item
        how = self.how = _library.HOW[item.how]
        self.counts[how] = self.counts.get(how, 0) + 1
        read_by = self.read_by = self._lib.seekless_order_read_by(self._handle).decode()
        self.readers[read_by] = self.readers.get(read_by, 0) + 1
        return Item(item.path.decode(*_ENCODING), item.offset, item.length)

    def _add(self) -> bool:
        """Adds paths until a batch is full. Whether there were any."""
        some = False
        for path in self._paths:
            some = True
            name = os.fsencode(path)
            if b"\0" in name:
                self._failed(os.fsdecode(name), "a zero byte in a path")
            elif self._lib.seekless_order_add(self._handle, name) != 0:
                break
        return some

    def _failed(self, path: str, reason: str) -> None:
        self.failures += 1
        self._on_failure(Failure(path, reason))


def _warn(failure: Failure) -> None:
    _log.warning("%s", failure)
