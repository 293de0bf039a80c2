#include "common.h"
extern ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
static int body(int fd, const char *path)
{
    (void)path;
    show("__pread_chk", __pread_chk(fd, buf, 300000, 131072, sizeof buf), buf, 300000);
    return 0;
}
