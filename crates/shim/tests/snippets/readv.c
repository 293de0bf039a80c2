#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    struct iovec v[3] = {{buf, 1000}, {buf + 1000, 0}, {buf + 1000, 99000}};
    lseek(fd, 65536, SEEK_SET);
    show("readv", readv(fd, v, 3), buf, 100000);
    show("no vectors", readv(fd, v, 0), "", 0);
    show("minus one", readv(fd, v, -1), "", 0);
    show("vectors nowhere", readv(fd, (void *)8, 2), "", 0);
    show("too long", (v[1].iov_len = (size_t)-1, readv(fd, v, 3)), "", 0);
    return 0;
}
