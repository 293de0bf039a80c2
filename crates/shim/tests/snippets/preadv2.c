#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    struct iovec v[2] = {{buf, 1000}, {buf + 1000, 299000}};
    show("preadv2", preadv2(fd, v, 2, 131072, 0), buf, 300000);
    return 0;
}
