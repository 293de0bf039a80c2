#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    struct iovec v[2] = {{buf, 1000}, {buf + 1000, 299000}};
    show("preadv", preadv(fd, v, 2, 131072), buf, 300000);
    show("vectors nowhere", preadv(fd, (void *)8, 2, 0), "", 0);
    return 0;
}
