#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    struct iovec v[2] = {{buf, 1000}, {buf + 1000, 99000}};
    lseek(fd, 65536, SEEK_SET);
    show("preadv2", preadv2(fd, v, 2, -1, 0), buf, 100000);
    show("position", lseek(fd, 0, SEEK_CUR), "", 0);
    return 0;
}
