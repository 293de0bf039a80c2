"""The package against the library that SEEKLESS_ORDER_LIBRARY names.

    SEEKLESS_ORDER_LIBRARY=target/debug/libseekless_order.so PYTHONPATH=python python3 -m unittest discover python/tests
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path

import seekless_order

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import build_backend  # noqa: E402


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        # On the disk that the build is on: /tmp may be memory.
        place = os.environ.get("SEEKLESS_ORDER_TEST_DIR")
        self._folder = tempfile.TemporaryDirectory(dir=place)
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)

    def files(self, sizes) -> list:
        paths = []
        for number, size in enumerate(sizes):
            path = self.root / f"f{number:04}"
            path.write_bytes(bytes([number % 251]) * size)
            paths.append(str(path))
            # What is in memory would come as listed.
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return paths


class Order(Folder):
    def test_every_file_comes_once_and_whole(self) -> None:
        paths = self.files(1 + n * 997 % 40_000 for n in range(60))
        got = {}
        with seekless_order.order(reversed(paths), window=1 << 20) as files:
            for path, offset, length in files:
                self.assertNotIn(path, got)
                self.assertEqual((offset, length), (0, os.path.getsize(path)))
                got[path] = files.how
                self.assertIn(files.read_by, ("itself", "daemon", "nobody"))
        self.assertEqual(sorted(got), paths)
        self.assertEqual(sum(files.readers.values()), 60)
        self.assertLessEqual(set(got.values()), {"address", "inode"})
        self.assertEqual((sum(files.counts.values()), files.failures), (60, 0))
        self.assertEqual(list(files), [], "the end stays the end")

    def test_without_a_daemon_this_process_reads(self) -> None:
        paths = self.files([5000] * 12)
        files = seekless_order.order(paths, daemon=False)
        self.assertEqual(len(list(files)), 12)
        self.assertNotIn("daemon", files.readers)
        files = seekless_order.order(paths, window=0)
        self.assertEqual((len(list(files)), files.readers), (12, {"nobody": 12}))

    def test_each_way_to_sort_does_as_it_says(self) -> None:
        paths = self.files([10] * 40)
        inode = lambda path: os.stat(path).st_ino  # noqa: E731
        falling = sorted(paths, key=inode, reverse=True)
        files = seekless_order.order(falling, by="inode")
        self.assertEqual([item.path for item in files], falling[::-1])
        self.assertEqual((files.how, files.counts), ("inode", {"inode": 40}))
        files = seekless_order.order(falling, by="listed", window=0)
        self.assertEqual([item.path for item in files], falling)
        self.assertEqual(files.how, "as listed")
        library = seekless_order._library.library()
        names = [library.seekless_order_how(how).decode() for how in range(3)]
        self.assertEqual(names, list(seekless_order._library.HOW), "the names of the C library")

    def test_a_long_list_is_taken_batch_by_batch(self) -> None:
        paths = self.files([5] * 10)
        taken = 0

        def listing():
            nonlocal taken
            for n in range(10_000):
                taken += 1
                yield paths[n % 10]

        given = 0
        for _ in seekless_order.order(listing(), batch=100):
            given += 1
            self.assertLessEqual(taken - given, 100)
        self.assertEqual(given, 10_000)

    def test_ranges_of_a_file_come_one_after_the_other(self) -> None:
        paths = self.files([10_000, 0, 4_096])
        got = {}
        for path, offset, length in seekless_order.order(paths, range_max=4_096, window=8_192):
            got.setdefault(path, []).append((offset, length))
        ranges = [[(0, 4_096), (4_096, 4_096), (8_192, 1_808)], [(0, 0)], [(0, 4_096)]]
        self.assertEqual([got[path] for path in paths], ranges)

    def test_a_folder_stands_for_its_files(self) -> None:
        paths = self.files([100] * 5)
        below = self.root / "a" / "b"
        below.mkdir(parents=True)
        (below / "deep").write_text("x")
        os.symlink(self.root, below / "round")
        got = [item.path for item in seekless_order.order([self.root], folders=True)]
        self.assertEqual(sorted(got), sorted([*paths, str(below / "deep")]))
        (path, _, length), = seekless_order.order([self.root])
        self.assertEqual((path, length), (str(self.root), 0))

    def test_failures_are_told_and_the_rest_goes_on(self) -> None:
        good, = self.files([3])
        odd = os.fsencode(self.root) + b"/\xff\n"
        with open(odd, "wb") as file:
            file.write(b"odd")
        os.symlink("loop", self.root / "loop")
        bad = [str(self.root / "gone"), str(self.root / "loop"), "/dev/null", "", "zero\0byte"]
        failed = []
        files = seekless_order.order([bad[0], odd, *bad[1:], good], on_failure=failed.append)
        self.assertEqual(sorted(os.fsencode(item.path) for item in files), sorted([odd, os.fsencode(good)]))
        self.assertEqual(sorted(f.path for f in failed), sorted(bad))
        self.assertEqual(files.failures, len(bad))
        self.assertTrue(all(f.reason and "\n" not in str(f) for f in failed), failed)
        with self.assertLogs("seekless_order", "WARNING") as log:
            self.assertEqual(list(seekless_order.order([bad[0]])), [])
        self.assertEqual(len(log.output), 1)
        self.assertIn("No such file", log.output[0])

    def test_threads_share_the_items(self) -> None:
        paths = self.files([4_096] * 500)
        files = seekless_order.order(paths, window=64 << 10, batch=70)
        got, lock = [], threading.Lock()

        def work() -> None:
            for path, _, length in files:
                content = Path(path).read_bytes()
                with lock:
                    got.append((path, len(content) == length))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        self.assertEqual(sorted(got), [(path, True) for path in paths])

    def test_what_is_left_in_the_middle_ends_at_once(self) -> None:
        paths = self.files([100_000] * 200)
        for _ in range(20):
            for _item in seekless_order.order(paths, window=1 << 20):
                break
        with seekless_order.order(paths) as files:
            next(files)
        with self.assertRaises(StopIteration):
            next(files)
        files.close()

    def test_a_child_is_refused_instead_of_waiting(self) -> None:
        paths = self.files([10] * 5)
        files = seekless_order.order(paths)
        next(files)
        child = os.fork()
        if child == 0:
            try:
                next(files)
                status = 1
            except RuntimeError:
                files.close()
                status = 0
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(list(files)), 4)

    def test_options_out_of_range_are_refused(self) -> None:
        for options in ({"by": "name"}, {"batch": 0}, {"window": -1}, {"range_max": 1 << 64}):
            with self.assertRaises(ValueError, msg=str(options)):
                seekless_order.order([], **options)
        with self.assertRaises(TypeError):
            list(seekless_order.order([3]))
        for path in ("/srv", b"/srv"):
            with self.assertRaisesRegex(TypeError, "a list of paths"):
                seekless_order.order(path, folders=True)


class Package(Folder):
    def run_python(self, code: str, **environment: str) -> subprocess.CompletedProcess:
        env = {**os.environ, **environment}
        run = [sys.executable, "-c", code]
        # Python looks for packages in the current folder first.
        return subprocess.run(run, env=env, cwd=self.root, capture_output=True, text=True, timeout=60)

    def test_without_the_library_one_line_says_where_it_is_from(self) -> None:
        code = "import seekless_order\ntry:\n seekless_order.order([])\nexcept OSError as e:\n print(e)"
        done = self.run_python(code, SEEKLESS_ORDER_LIBRARY="/nowhere/at/all.so")
        self.assertEqual(done.stdout.count("\n"), 1, done)
        self.assertIn("cargo build --release -p seekless-order-c", done.stdout)
        done = self.run_python(code, SEEKLESS_ORDER_LIBRARY="libm.so.6")
        self.assertIn("SEEKLESS_ORDER_LIBRARY", done.stdout)

    def test_the_wheel_is_whole_and_has_the_library(self) -> None:
        name = build_backend.build_wheel(str(self.root))
        self.assertEqual(name, build_backend.build_wheel(str(self.root)))
        self.assertTrue(name.startswith("seekless_order-") and "linux" in name, name)
        target = self.root / "site"
        with zipfile.ZipFile(self.root / name) as wheel:
            self.assertIsNone(wheel.testzip())
            names = wheel.namelist()
            wheel.extractall(target)
        self.assertIn("seekless_order/py.typed", names)
        # The library beside the package is found without being named.
        code = "import seekless_order; print(seekless_order.__file__, len(list(seekless_order.order(['/']))))"
        done = self.run_python(code, SEEKLESS_ORDER_LIBRARY="", PYTHONPATH=str(target))
        self.assertEqual(done.stdout, f"{target}/seekless_order/__init__.py 1\n", done.stderr)

    def test_pip_installs_it_without_a_network(self) -> None:
        pip = [sys.executable, "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True).returncode != 0:
            self.skipTest("no pip")
        source = self.root / "source"
        source.mkdir()
        name = build_backend.build_sdist(str(source))
        target = self.root / "site"
        install = [*pip, "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
        done = subprocess.run([*install, str(source / name)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((target / "seekless_order" / "py.typed").exists())

    def test_versions_are_those_of_the_workspace(self) -> None:
        cargo = (HERE.parent / "Cargo.toml").read_text()
        self.assertIn(f'version = "{seekless_order.__version__}"', cargo.split("[workspace.dependencies]")[0])
        self.assertEqual(build_backend._field("version"), seekless_order.__version__)


if __name__ == "__main__":
    unittest.main()
