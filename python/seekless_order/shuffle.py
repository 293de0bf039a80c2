"""The order in which a data loader takes samples: nearly a shuffle, and nearly the order of the disk.

Samples lie on the disk one after the other. They are cut into blocks, each long enough that a seek to it
costs little beside reading it. The blocks are shuffled. A sweep takes some of them, in the order of the disk.
What a sweep brings goes into a buffer in memory, from which samples leave at random. The first two steps and
the buffer are those of CorgiPile (Xu et al., SIGMOD 2022, section 4); the sweep within a part of the buffer
is ours.

    python3 -m seekless_order.shuffle --samples 100000 --buffer 10000 --block 100

prints how good the shuffle is, beside a full shuffle, a buffer over the order of the disk (what loaders of
shards do), and CorgiPile's, all with the same buffer.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

T = TypeVar("T")

#: A sweep takes this part of the buffer: a quarter. With half, samples of one sweep leave in the order of the
#: disk more often, since the buffer is not much longer than the sweep; an eighth changes the shuffle little
#: and has twice as many sweeps, so the seeks between blocks are longer.
SWEEPS = 4


def plan(
    lengths: Sequence[int], block: int, buffer: int, seed: object, rank: int = 0, world: int = 1
) -> List[range]:
    """The blocks of samples in the order in which they are read.

    ``lengths``: bytes (or any measure) of each sample, in the order of the disk. ``block``: least length of a
    block; the last one may be shorter. ``buffer``: length of the buffer. ``seed``: of the shuffle; one that
    any process of the same loader has gives the same blocks. ``rank``, ``world``: every ``world``-th of them,
    from that one on.
    """
    blocks = cut(lengths, block)
    random.Random(repr(seed)).shuffle(blocks)
    blocks = blocks[rank::world]
    sweep: List[range] = []
    swept: List[range] = []
    length = 0
    for each in blocks:
        sweep.append(each)
        length += sum(lengths[each.start : each.stop])
        if length * SWEEPS >= buffer:
            swept += sorted(sweep, key=lambda samples: samples.start)
            sweep, length = [], 0
    return swept + sorted(sweep, key=lambda samples: samples.start)


def cut(lengths: Sequence[int], block: int) -> List[range]:
    """Blocks of at least this length, in the order of the disk."""
    blocks, start, length = [], 0, 0
    for end, sample in enumerate(lengths, 1):
        length += sample
        if length >= block:
            blocks.append(range(start, end))
            start, length = end, 0
    return blocks + ([range(start, len(lengths))] if start < len(lengths) else [])


class Buffer:
    """Samples that wait; they leave in random order. ``length`` is the sum of those in it."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._samples: list = []
        self.length = 0

    def add(self, sample: object, length: int) -> None:
        self._samples.append((sample, length))
        self.length += length

    def take(self) -> object:
        """One of them. Raises IndexError if there is none."""
        samples = self._samples
        at = self._random.randrange(len(samples)) if samples else -1
        samples[at], samples[-1] = samples[-1], samples[at]
        sample, length = samples.pop()
        self.length -= length
        return sample

    def __len__(self) -> int:
        return len(self._samples)


def buffered(source: Iterable[T], buffer: int, generator: random.Random) -> Iterator[T]:
    """A buffer of this many items over a source, as loaders of shards have it."""
    waiting = Buffer(generator)
    for item in source:
        waiting.add(item, 1)
        if len(waiting) >= buffer:
            yield waiting.take()  # type: ignore[misc]
    while len(waiting):
        yield waiting.take()  # type: ignore[misc]


# --- The same with numbers instead of bytes, and how good each is.


def full(samples: int, buffer: int, block: int, workers: int, seed: int) -> List[int]:
    order = list(range(samples))
    random.Random(seed).shuffle(order)
    return order


def window(samples: int, buffer: int, block: int, workers: int, seed: int) -> List[int]:
    parts = [range(w, samples, workers) for w in range(workers)]
    share = max(1, buffer // workers)
    return _in_turn([list(buffered(part, share, random.Random(seed + w))) for w, part in enumerate(parts)])


def corgipile(samples: int, buffer: int, block: int, workers: int, seed: int) -> List[int]:
    """Each worker fills its share of the buffer with blocks of its own, then empties it shuffled."""
    blocks = cut([1] * samples, block)
    generator = random.Random(seed)
    generator.shuffle(blocks)
    count = max(1, buffer // workers // block)
    outs: List[List[int]] = []
    for worker in range(workers):
        own, out = blocks[worker::workers], []
        for first in range(0, len(own), count):
            tuples = [sample for each in own[first : first + count] for sample in each]
            generator.shuffle(tuples)
            out += tuples
        outs.append(out)
    return _in_turn(outs)


def seekless(samples: int, buffer: int, block: int, workers: int, seed: int) -> List[int]:
    """The loader: workers take the blocks of one plan in turn, each into its share of the buffer."""
    blocks = plan([1] * samples, block, buffer, seed)
    share = max(1, buffer // workers)
    own = [(sample for each in blocks[w::workers] for sample in each) for w in range(workers)]
    return _in_turn([list(buffered(part, share, random.Random(seed + w))) for w, part in enumerate(own)])


def _in_turn(outs: List[List[int]], batch: int = 32) -> List[int]:
    """Batches of each worker in turn, as a loader of several processes gives them."""
    merged: List[int] = []
    at = 0
    while any(at < len(out) for out in outs):
        for out in outs:
            merged += out[at : at + batch]
        at += batch
    return merged


METHODS = {"full shuffle": full, "buffer over disk order": window, "CorgiPile": corgipile, "seekless": seekless}


def quality(order: Sequence[int], window_samples: int = 256, parts: int = 64) -> Dict[str, float]:
    """How far an order is from that of the disk; a full shuffle has 1, 0, and 1 and 1.

    ``displacement``: mean distance of a sample from its place on the disk, by that of a full shuffle (a third
    of all). ``correlation``: of places before and after (Spearman). ``entropy`` and ``entropy_min``: of a
    window of samples, over ``parts`` equal parts of the disk, by the mean of a full shuffle: what a model
    sees at a time; mean and least of all windows. ``neighbours``: pairs of samples one after the other that
    are at most 32 places apart on the disk, as a share, by that of a full shuffle.
    """
    count = len(order)
    middle = (count - 1) / 2
    displacement = sum(abs(at - place) for at, place in enumerate(order)) / count / ((count * count - 1) / (3 * count))
    spread = sum((at - middle) ** 2 for at in range(count))
    correlation = sum((at - middle) * (place - middle) for at, place in enumerate(order)) / spread
    window_samples = min(window_samples, count)
    entropies = [
        _entropy(order[first : first + window_samples], count, parts)
        for first in range(0, count - window_samples + 1, window_samples)
    ]
    shuffled = full(count, 0, 0, 1, 1)
    references = [
        _entropy(shuffled[first : first + window_samples], count, parts)
        for first in range(0, count - window_samples + 1, window_samples)
    ]
    reference = sum(references) / len(references)
    near = sum(abs(a - b) <= 32 for a, b in zip(order, order[1:])) / max(1, count - 1)
    return {
        "displacement": displacement,
        "correlation": correlation,
        "entropy": sum(entropies) / len(entropies) / reference,
        "entropy_min": min(entropies) / reference,
        "neighbours": near / min(1.0, 64 / count),
    }


def _entropy(samples: Sequence[int], count: int, parts: int) -> float:
    counts: Dict[int, int] = {}
    for place in samples:
        part = place * parts // count
        counts[part] = counts.get(part, 0) + 1
    return -sum(n / len(samples) * math.log(n / len(samples)) for n in counts.values())


def compare(samples: int, buffer: int, block: int, workers: int, seed: int) -> Dict[str, Dict[str, float]]:
    """The quality of each method with the same buffer."""
    return {name: quality(method(samples, buffer, block, workers, seed)) for name, method in METHODS.items()}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m seekless_order.shuffle",
        description="How good the shuffle of the loader is, beside others with the same buffer.",
    )
    number = _at_least_one
    parser.add_argument("--samples", type=number, default=100_000, help="samples of the data set [%(default)s]")
    parser.add_argument("--buffer", type=number, default=10_000, help="samples in memory, of all workers [%(default)s]")
    parser.add_argument("--block", type=number, default=100, help="samples of a block [%(default)s]")
    parser.add_argument("--workers", type=number, default=1, help="processes that load [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffles [%(default)s]")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    options = parser.parse_args(arguments)
    found = compare(options.samples, options.buffer, options.block, options.workers, options.seed)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    columns: Tuple[str, ...] = tuple(next(iter(found.values())))
    print(f"{'':24}" + "".join(f"{column:>14}" for column in columns))
    for name, values in found.items():
        print(f"{name:24}" + "".join(f"{values[column]:14.3f}" for column in columns))
    return 0


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
