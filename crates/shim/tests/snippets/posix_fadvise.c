#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    show("posix_fadvise", posix_fadvise(fd, 131072, 300000, POSIX_FADV_WILLNEED), "", 0);
    show("negative", posix_fadvise(fd, 0, -1, POSIX_FADV_WILLNEED), "", 0);
    show("closed", posix_fadvise(999, 0, 1, POSIX_FADV_WILLNEED), "", 0);
    return 0;
}
