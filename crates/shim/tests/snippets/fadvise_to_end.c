#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    show("posix_fadvise", posix_fadvise(fd, 131072, 0, POSIX_FADV_WILLNEED), "", 0);
    return 0;
}
