"""Data sets for loaders of samples (``torch.utils.data``, WebDataset), read in the order of the disk.

A loader that shuffles makes its disk seek once a sample. These data sets read a block of samples that lie one
after the other, block after block in short sweeps, and let samples leave a buffer at random
(:mod:`seekless_order.shuffle` says how good that shuffle is)::

    from seekless_order.loader import Files, Shards

    data = Files(["/srv/photos"], buffer=2 << 30)                       # (path, bytes)
    loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=16, collate_fn=mine)

    data = wds.DataPipeline(Shards(["/srv/shards"]), wds.decode("rgb"), wds.to_tuple("jpg", "cls"))

The workers of a loader take blocks in turn, and have the kernel read them one after the other: the disk has a
queue that goes forward, while workers decode. Which worker gets which block depends on how fast each is; the
blocks and the order in which they are read depend on the seed alone. Samples are whole files, or the files of
one key in a tar.

torch is not needed: without it the data sets are plain iterables.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import random
import re
import shutil
import tarfile
import tempfile
from typing import IO, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import AnyPath, Failure, order, shuffle

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:

    class IterableDataset:  # type: ignore[no-redef]
        """Stands in for torch's."""

    def get_worker_info() -> None:  # type: ignore[misc]
        return None


__all__ = ["Files", "Shards"]

#: Bytes of all buffers together, unless ``buffer`` says otherwise.
BUFFER = 1 << 30

#: Least bytes of a block. A drive reads 8 MiB in about 50 ms and positions in 10 to 15. Half: a fifth more of
#: the disk's time is positioning. Double: fewer blocks are in the buffer at a time, and the shuffle is
#: coarser.
BLOCK = 8 << 20

#: Bytes that the kernel is told of at a time: it takes no more of one advice than its largest request.
ADVICE = 512 << 10

#: Files of a block that a worker opens before it reads the first. More are read without an announcement.
OPEN_MAX = 256

#: Passes over the data whose place is remembered: workers that are kept may be in two.
PASSES = 4


class _Sample(NamedTuple):
    """Bytes of a file."""

    path: str
    offset: int
    length: int


class _Blocks(IterableDataset):
    """Samples in nearly random order, and nearly in the order of the disk."""

    def __init__(
        self, samples: List[_Sample], buffer: int, block: int, seed: int, rank: int, world: int,
        on_failure: Optional[Callable[[Failure], None]],
    ) -> None:  # fmt: skip
        if buffer < 1 or block < 1:
            raise ValueError(f"buffer={buffer}, block={block}: both are at least 1")
        if not 0 <= rank < world:
            raise ValueError(f"rank={rank} of world={world}: ranks are 0 to {world - 1}")
        super().__init__()
        self._samples = samples
        self._buffer, self._block, self._seed = buffer, block, seed
        self._rank, self._world = rank, world
        self._on_failure = on_failure
        self._epoch = 0
        self._passes = 0
        self._turns = _Turns()

    def set_epoch(self, epoch: int) -> None:
        """Another shuffle. Needed between epochs if ``world`` is more than 1; else each pass has its own."""
        self._epoch = epoch

    def __len__(self) -> int:
        if self._world == 1:
            return len(self._samples)
        return sum(len(block) for block in self._plan(self._shuffle(get_worker_info())))

    def __iter__(self) -> Iterator[object]:
        worker = get_worker_info()
        this, blocks = self._pass(worker), self._plan(self._shuffle(worker))
        self._passes += 1
        workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        share = max(self._block, self._buffer // workers)
        waiting = shuffle.Buffer(random.Random(repr((this, number))))
        while True:
            # The next block has room before it is read.
            while len(waiting) and waiting.length + self._block > share:
                yield self._decode(*waiting.take())  # type: ignore[misc]
            with self._turns.next(this) as turn:
                if turn.number >= len(blocks):
                    break
                block = self._announce(blocks[turn.number])
                turn.read()
                for sample, content in self._read(block):
                    waiting.add((sample, content), len(content))
        while len(waiting):
            yield self._decode(*waiting.take())  # type: ignore[misc]

    def __call__(self) -> Iterator[object]:
        """A source of a pipeline of WebDataset, also where it does not know the class."""
        return iter(self)

    def _pass(self, worker: object) -> Tuple[int, ...]:
        """The same in all workers of a loader, and another in each pass."""
        # torch draws it anew for each pass, from its own seed; workers that are kept count.
        drawn = worker.seed - worker.id if worker else 0  # type: ignore[attr-defined]
        return (self._seed, self._epoch, drawn, self._passes)

    def _shuffle(self, worker: object) -> Tuple[int, ...]:
        """The same for all ranks: what is drawn and counted is each one's own."""
        return self._pass(worker) if self._world == 1 else (self._seed, self._epoch)

    def _plan(self, seed: Tuple[int, ...]) -> List[range]:
        lengths = [sample.length for sample in self._samples]
        return shuffle.plan(lengths, self._block, self._buffer, seed, self._rank, self._world)

    def _announce(self, block: range) -> Tuple[range, Dict[str, int]]:
        """Opens the files of a block, as many as one process should, and has the kernel read it."""
        files: Dict[str, int] = {}
        for sample in self._samples[block.start : block.stop]:
            if sample.path not in files:
                if len(files) == OPEN_MAX:
                    break
                try:
                    files[sample.path] = os.open(sample.path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    # The read says why.
                    continue
            for offset in range(sample.offset, sample.offset + sample.length, ADVICE):
                length = min(ADVICE, sample.offset + sample.length - offset)
                os.posix_fadvise(files[sample.path], offset, length, os.POSIX_FADV_WILLNEED)
        return block, files

    def _read(self, announced: Tuple[range, Dict[str, int]]) -> Iterator[Tuple[_Sample, bytes]]:
        block, files = announced
        try:
            for sample in self._samples[block.start : block.stop]:
                try:
                    if sample.path in files:
                        yield sample, _pread(files[sample.path], sample)
                        continue
                    with open(sample.path, "rb", buffering=0) as file:
                        yield sample, _pread(file.fileno(), sample)
                except OSError as error:
                    self._failed(sample, error)
        finally:
            for file in files.values():
                os.close(file)

    def _failed(self, sample: _Sample, error: OSError) -> None:
        if self._on_failure is None:
            raise OSError(error.errno, error.strerror, sample.path) from None
        self._on_failure(Failure(sample.path, error.strerror or str(error)))

    def _decode(self, sample: _Sample, content: bytes) -> object:
        raise NotImplementedError


class Files(_Blocks):
    """Each file is a sample: ``(path, bytes)``, or what ``decode(path, bytes)`` makes of it.

    ``paths``: files, and folders for the regular files below them. ``buffer``: bytes of all workers' buffers
    together. ``block``: least bytes that are read one after the other. ``seed``: of the shuffle. ``rank``,
    ``world``: this process's part of the blocks, where several machines train together; call ``set_epoch``.
    ``on_failure``: called with each file that cannot be read; without it, that raises OSError.

    The files are looked up here, once, so that the workers of a loader need not: cold, that takes the disk a
    while. A file that is longer now than it was is cut, one that is shorter is what it is.

    Raises LibraryNotFound, ValueError and TypeError as :func:`seekless_order.order`.
    """

    def __init__(
        self, paths: Iterable[AnyPath], *, buffer: int = BUFFER, block: int = BLOCK, seed: int = 0,
        decode: Optional[Callable[[str, bytes], object]] = None, rank: int = 0, world: int = 1,
        on_failure: Optional[Callable[[Failure], None]] = None,
    ) -> None:  # fmt: skip
        samples = [_Sample(*item) for item in order(paths, window=0, folders=True, on_failure=on_failure)]
        super().__init__(samples, buffer, block, seed, rank, world, on_failure)
        self._decoder = decode

    def _decode(self, sample: _Sample, content: bytes) -> object:
        return self._decoder(sample.path, content) if self._decoder else (sample.path, content)


class Shards(_Blocks):
    """Each key of a tar is a sample, as WebDataset has it: ``{"__key__", "__url__", "jpg": bytes, ...}``.

    ``shards``: tars, not compressed, and folders for the ``*.tar`` below them. ``index``: a folder for what
    is known of the shards. It takes a pass over all of them to find where each sample begins; with a folder
    that is done once for each shard that is new or has changed. The other options are those of
    :class:`Files`.

    Raises ValueError if a shard is no tar, besides what :class:`Files` raises.
    """

    def __init__(
        self, shards: Iterable[AnyPath], *, buffer: int = BUFFER, block: int = BLOCK, seed: int = 0,
        index: Optional[AnyPath] = None, rank: int = 0, world: int = 1,
        on_failure: Optional[Callable[[Failure], None]] = None,
    ) -> None:  # fmt: skip
        named = [os.fsdecode(path) for path in _several(shards)]
        paths = order(named, window=0, folders=True, on_failure=on_failure)
        chosen = [item.path for item in paths if item.path.endswith(".tar") or item.path in named]
        samples = [
            _Sample(path, offset, length)
            for path in chosen
            for offset, length in _samples_of(path, None if index is None else os.fsdecode(index))
        ]
        super().__init__(samples, buffer, block, seed, rank, world, on_failure)

    def _decode(self, sample: _Sample, content: bytes) -> object:
        found: Dict[str, object] = {"__url__": sample.path}
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                split = _key(member.name)
                if member.isreg() and split:
                    found["__key__"], extension = split
                    found[extension.lower()] = tar.extractfile(member).read()  # type: ignore[union-attr]
        return found


def _several(paths: Iterable[AnyPath]) -> Iterable[AnyPath]:
    if isinstance(paths, (str, bytes)):
        raise TypeError(f"{paths!r}: give a list of paths, not one path")
    return paths


def _pread(file: int, sample: _Sample) -> bytes:
    content = os.pread(file, sample.length, sample.offset)
    # A read ends early at 2 GiB and at signals.
    while len(content) < sample.length:
        more = os.pread(file, sample.length - len(content), sample.offset + len(content))
        if not more:
            break
        content += more
    return content


def _key(name: str) -> Optional[Tuple[str, str]]:
    """Key and extension, as WebDataset splits names: at the first dot of the last part."""
    split = re.fullmatch(r"((?:.*/)?[^./]+)\.([^/]+)", name)
    return (split[1], split[2]) if split else None


def _samples_of(path: str, index: Optional[str]) -> List[Tuple[int, int]]:
    """Offset and length of each sample of a shard: its headers and contents."""
    stat = os.stat(path)
    what = {"path": path, "bytes": stat.st_size, "changed_ns": stat.st_mtime_ns}
    kept = os.path.join(index, re.sub(r"[^\w.-]", "_", path)[-180:] + ".json") if index else None
    if kept:
        try:
            with open(kept) as file:
                known = json.load(file)
            if known["of"] == what:
                return [(offset, length) for offset, length in known["samples"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass
    samples: List[Tuple[int, int]] = []
    try:
        with tarfile.open(path, "r:") as tar:
            current, start, end = None, 0, 0
            for member in tar:
                # With the headers of long names, and to the end of the last block.
                begin, stop = member.offset, member.offset_data + -(-member.size // 512) * 512
                split = _key(member.name)
                if not member.isreg() or split is None:
                    continue
                if split[0] != current:
                    if current is not None:
                        samples.append((start, end - start))
                    current, start = split[0], begin
                end = stop
            if current is not None:
                samples.append((start, end - start))
    except tarfile.TarError as error:
        raise ValueError(f"{path!r} is no tar, or a compressed one: {error}; give tars as they are") from None
    if kept and index:
        os.makedirs(index, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=index, delete=False) as file:
            json.dump({"of": what, "samples": samples}, file)
        os.replace(file.name, kept)
    return samples


class _Turns:
    """Which block is next, for all processes of a loader.

    A turn has two parts. In the first a worker announces its block to the kernel, in the second it reads it.
    Each part is one worker's at a time, so the disk has the block that is read and the next one, and no more:
    it goes on without a pause, and in the order of the plan.

    A file without a name that a descriptor holds would not reach a worker that is started anew (`spawn`), so
    the two files that are locked have names. They end with the object of the process that made it.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="seekless-loader.")
        for name in _Turn.FILES:
            open(os.path.join(self._folder, name), "x").close()
        self._owner: Optional[int] = os.getpid()

    def next(self, this: Tuple[int, ...]) -> "_Turn":
        return _Turn(self._folder, this)

    def __del__(self) -> None:
        if getattr(self, "_owner", None) == os.getpid():
            shutil.rmtree(self._folder, ignore_errors=True)

    def __getstate__(self) -> dict:
        return {"_folder": self._folder, "_owner": None}


class _Turn:
    FILES = ("next", "reading")

    def __init__(self, folder: str, this: Tuple[int, ...]) -> None:
        self._folder, self._this = folder, repr(this)
        self._held: list = []
        #: Of the block, in the plan.
        self.number = 0

    def __enter__(self) -> "_Turn":
        passes = json.loads(self._lock("next").read() or "{}")
        self.number = passes.pop(self._this, 0)
        # The pass that had a turn last is last.
        passes[self._this] = self.number + 1
        file = self._held[0]
        file.seek(0)
        file.truncate()
        json.dump(dict(list(passes.items())[-PASSES:]), file)
        file.flush()
        return self

    def read(self) -> None:
        """Waits for the worker that reads; the next one may announce then."""
        self._lock("reading")
        self._held.pop(0).close()

    def _lock(self, name: str) -> IO[str]:
        file = open(os.path.join(self._folder, name), "r+")
        self._held.append(file)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def __exit__(self, *_: object) -> None:
        # A lock ends with its descriptor, and with a process that is killed.
        for file in self._held:
            file.close()
