# A Python host: every way of reading its library has, in threads and in children.
import hashlib, mmap, os, subprocess, sys, tempfile, threading

path = sys.argv[1]


def say(name, data):
    print(name, len(data), hashlib.sha256(data).hexdigest(), flush=True)


def cold():
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
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
