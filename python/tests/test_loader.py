"""The data sets for loaders, and the quality of their shuffle. torch and webdataset are used where they are.

Run as test_order.py says.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pickle
import random
import tarfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import test_order
from seekless_order import loader, shuffle


def worker(data, number: int, workers: int, results) -> None:
    """A process of a loader, as torch has them."""
    loader.get_worker_info = lambda: SimpleNamespace(id=number, num_workers=workers, seed=7 + number)
    results.put((number, [path for path, _ in data]))


class Loader(test_order.Folder):
    def test_every_file_is_a_sample_once_and_its_bytes_are_right(self) -> None:
        paths = self.files(1 + n * 997 % 9_000 for n in range(200))
        data = loader.Files([str(self.root)], buffer=200_000, block=20_000)
        self.assertEqual(len(data), 200)
        got = dict(data)
        self.assertEqual(sorted(got), paths)
        for path, content in got.items():
            self.assertEqual(content, Path(path).read_bytes())

    def test_each_pass_has_another_order_and_a_seed_the_same_again(self) -> None:
        self.files([3_000] * 120)
        make = lambda seed: loader.Files([str(self.root)], buffer=90_000, block=9_000, seed=seed)  # noqa: E731
        data = make(3)
        first, second = [p for p, _ in data], [p for p, _ in data]
        self.assertEqual(sorted(first), sorted(second))
        self.assertNotEqual(first, second)
        self.assertEqual(first, [p for p, _ in make(3)])
        self.assertNotEqual(first, [p for p, _ in make(4)])
        again = make(3)
        again.set_epoch(1)
        self.assertNotEqual(first, [p for p, _ in again])

    def test_memory_is_bounded_by_the_buffer(self) -> None:
        self.files([3_000] * 120)
        data = loader.Files([str(self.root)], buffer=60_000, block=9_000, decode=lambda path, content: len(content))
        most = 0
        add = shuffle.Buffer.add

        def counting(buffer, sample, length) -> None:
            nonlocal most
            add(buffer, sample, length)
            most = max(most, buffer.length)

        shuffle.Buffer.add = counting
        self.addCleanup(setattr, shuffle.Buffer, "add", add)
        self.assertEqual(sum(data), 360_000)
        # A block ends with the sample that makes it long enough.
        self.assertLessEqual(most, 63_000)
        self.assertGreater(most, 45_000)

    def test_workers_share_one_pass(self) -> None:
        paths = self.files([2_000] * 160)
        data = loader.Files([str(self.root)], buffer=64_000, block=8_000)
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            results = context.Queue()
            workers = [context.Process(target=worker, args=(data, n, 4, results)) for n in range(4)]
            for each in workers:
                each.start()
            got = [results.get(timeout=60) for _ in workers]
            for each in workers:
                each.join()
            self.assertEqual(sorted(path for _, own in got for path in own), paths, method)
            # Another loader's pass is another one.
            data.set_epoch(1)

    def test_ranks_divide_the_blocks(self) -> None:
        paths = self.files([2_000] * 90)
        ranks = [loader.Files([str(self.root)], buffer=30_000, block=6_000, rank=r, world=3) for r in range(3)]
        got = [[path for path, _ in data] for data in ranks]
        self.assertEqual(sorted(sum(got, [])), paths)
        self.assertEqual([len(data) for data in ranks], [len(own) for own in got])
        self.assertEqual(len([path for path, _ in ranks[0]]), len(got[0]), "a second pass is whole too")

    def test_a_file_that_goes_is_said_and_the_rest_comes(self) -> None:
        paths = self.files([1_000] * 20)
        failures = []
        data = loader.Files(paths, on_failure=failures.append)
        strict = loader.Files(paths)
        os.unlink(paths[3])
        self.assertEqual(sorted(p for p, _ in data), paths[:3] + paths[4:])
        self.assertEqual([(f.path, f.reason) for f in failures], [(paths[3], "No such file or directory")])
        with self.assertRaises(FileNotFoundError) as raised:
            list(strict)
        self.assertEqual(raised.exception.filename, paths[3])

    def test_what_is_wrong_is_refused(self) -> None:
        paths = self.files([10])
        for options in ({"buffer": 0}, {"block": 0}, {"rank": 1}, {"rank": -1, "world": 2}):
            with self.assertRaises(ValueError):
                loader.Files(paths, **options)
        with self.assertRaises(TypeError):
            loader.Files(paths[0])
        with self.assertRaises(TypeError):
            loader.Shards(paths[0])

    def test_nothing_is_left_behind(self) -> None:
        data = loader.Files(self.files([10]))
        place = data._turns._folder
        copy = pickle.loads(pickle.dumps(data))
        self.assertEqual(len(list(copy)), 1)
        del copy
        self.assertTrue(os.path.exists(place))
        del data
        self.assertFalse(os.path.exists(place))

    def test_torch_takes_it_where_it_is(self) -> None:
        try:
            from torch.utils.data import DataLoader
        except ImportError:
            self.skipTest("torch is not here")
        paths = self.files([2_000] * 100)
        data = loader.Files([str(self.root)], buffer=64_000, block=8_000)
        batches = DataLoader(data, batch_size=8, num_workers=2, collate_fn=list)
        passes = [[path for batch in batches for path, _ in batch] for _ in range(2)]
        self.assertEqual([sorted(each) for each in passes], [paths, paths])
        self.assertNotEqual(*passes)


class Tars(test_order.Folder):
    def shard(self, name: str, keys, form=tarfile.GNU_FORMAT) -> dict:
        generator = random.Random(name)
        samples = {}
        with tarfile.open(self.root / name, "w", format=form) as tar:
            for key in keys:
                samples[key] = {"jpg": generator.randbytes(generator.randrange(3_000)), "cls": key[-3:].encode()}
                for extension, content in samples[key].items():
                    info = tarfile.TarInfo(f"{key}.{extension}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return samples

    def test_samples_of_shards_are_those_of_webdataset(self) -> None:
        keys = [f"a/{n:05}" for n in range(40)]
        long = [f"{'deep/' * 40}{n:05}" for n in range(10)]
        samples = self.shard("one.tar", keys)
        samples.update(self.shard("two.tar", long, tarfile.PAX_FORMAT))
        samples.update(self.shard("three.tar", [f"b/{n:05}" for n in range(7)] + [k + "x" for k in long]))
        # Not a shard.
        (self.root / "readme.txt").write_text("x")
        data = loader.Shards([str(self.root)], buffer=60_000, block=9_000)
        self.assertEqual(len(data), len(samples))
        got = {}
        for sample in data:
            self.assertTrue(sample.pop("__url__").endswith(".tar"))
            got[sample.pop("__key__")] = sample
        self.assertEqual(got, samples)
        try:
            import webdataset
        except ImportError:
            return
        urls = sorted(str(path) for path in self.root.glob("*.tar"))
        theirs = webdataset.DataPipeline(webdataset.SimpleShardList(urls), webdataset.tarfile_to_samples())
        theirs = {s["__key__"]: {k: v for k, v in s.items() if not k.startswith("__")} for s in theirs}
        self.assertEqual(theirs, samples)
        pipeline = webdataset.DataPipeline(data, webdataset.to_tuple("jpg", "cls"))
        self.assertEqual(sorted(pipeline), sorted((s["jpg"], s["cls"]) for s in samples.values()))

    def test_an_index_is_kept_until_the_shard_changes(self) -> None:
        self.shard("one.tar", ["k1", "k2", "k3"])
        shard, index = str(self.root / "one.tar"), self.root / "index"
        self.assertEqual(len(loader.Shards([shard], index=index)), 3)
        (kept,) = index.iterdir()
        known = json.loads(kept.read_text())
        # It is what the next one goes by.
        known["samples"] = known["samples"][:2]
        kept.write_text(json.dumps(known))
        self.assertEqual(len(loader.Shards([shard], index=index)), 2)
        self.shard("one.tar", ["k1", "k2", "k3", "k4"])
        self.assertEqual(len(loader.Shards([shard], index=index)), 4)
        kept.write_text("{")
        self.assertEqual(len(loader.Shards([shard], index=index)), 4)

    def test_what_is_no_tar_is_refused_in_one_line(self) -> None:
        packed = self.root / "x.tar"
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(__file__, "a.py")
        with self.assertRaisesRegex(ValueError, "is no tar, or a compressed one"):
            loader.Shards([str(packed)])


class Shuffle(unittest.TestCase):
    SIZES = {"samples": 20_000, "buffer": 2_000, "block": 40}

    def test_every_method_gives_every_sample_once(self) -> None:
        for workers in (1, 5):
            for name, method in shuffle.METHODS.items():
                order = method(3_001, 500, 20, workers, 2)
                self.assertEqual(sorted(order), list(range(3_001)), (name, workers))

    def test_with_the_same_buffer_it_is_between_corgipile_and_a_full_shuffle(self) -> None:
        for workers in (1, 8):
            for seed in range(4):
                found = shuffle.compare(workers=workers, seed=seed, **self.SIZES)
                ours, theirs, window = found["seekless"], found["CorgiPile"], found["buffer over disk order"]
                where = f"{workers} workers, seed {seed}: {found}"
                self.assertGreater(ours["entropy"], theirs["entropy"], where)
                self.assertGreater(ours["entropy_min"], theirs["entropy_min"], where)
                self.assertLess(ours["neighbours"], theirs["neighbours"], where)
                self.assertGreater(ours["displacement"], 0.85, where)
                self.assertLess(abs(ours["correlation"]), 0.25, where)
                self.assertLess(window["entropy"], ours["entropy"], where)
                self.assertAlmostEqual(found["full shuffle"]["displacement"], 1, delta=0.05)
                self.assertGreater(window["correlation"], 0.9, where)

    def test_a_plan_is_sweeps_of_whole_blocks(self) -> None:
        lengths = [1 + n % 7 for n in range(1_000)]
        blocks = shuffle.plan(lengths, 20, 400, 1)
        self.assertEqual(sorted(n for block in blocks for n in block), list(range(1_000)))
        short = [block for block in blocks if sum(lengths[block.start : block.stop]) < 20]
        self.assertLessEqual(len(short), 1)
        # A sweep has a quarter of the buffer: five blocks. It rises; the next begins anywhere.
        turns = sum(a.start > b.start for a, b in zip(blocks, blocks[1:]))
        self.assertLess(turns, len(blocks) / 4)
        self.assertGreater(turns, len(blocks) / 10)


if __name__ == "__main__":
    unittest.main()
