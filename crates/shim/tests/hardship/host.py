# A Python host: every way of reading its library has, in threads and in children.
import ctypes, hashlib, mmap, os, subprocess, sys, tempfile, threading, time

path = sys.argv[1]


def say(name, data):
    print(name, len(data), hashlib.sha256(data).hexdigest(), flush=True)


def resident(fd):
    """Whether any page of the file is in memory."""
    with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE) as m:
        pages = ctypes.create_string_buffer((len(m) + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
        start = ctypes.c_char.from_buffer(m)
        told = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(m)), pages)
        del start
        return told == 0 and any(page & 1 for page in pages.raw)


def cold():
    fd = os.open(path, os.O_RDONLY)
    # A page that is still on its way cannot be dropped.
    for _ in range(2000):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if not resident(fd):
            break
        time.sleep(0.005)
    return fd


with open(path, "rb") as f:
    say("open", f.read())
fd = cold()
say("pread", os.pread(fd, 300000, 131072))
buf = bytearray(200000)
print("preadv", os.preadv(fd, [buf], 1 << 20))
say("preadv", bytes(buf))
with tempfile.TemporaryFile() as out:
    print("sendfile", os.sendfile(out.fileno(), fd, 2 << 20, 500000))
    out.seek(0)
    say("sendfile", out.read())
with mmap.mmap(cold(), 0, prot=mmap.PROT_READ) as m:
    m.madvise(mmap.MADV_WILLNEED)
    say("mmap", m[:])
cold()
parts = [None] * 8


def part(i):
    parts[i] = os.pread(fd, 100000, i * 400000)


threads = [threading.Thread(target=part, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
say("threads", b"".join(parts))
cold()
say("child", subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout)
try:
    os.pread(999, 1, 0)
except OSError as e:
    print("errno", e.errno)
