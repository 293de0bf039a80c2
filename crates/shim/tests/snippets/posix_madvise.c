#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    char *at = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 65536);
    show("posix_madvise", posix_madvise(at + 65536, 300000, POSIX_MADV_WILLNEED), at + 65536, 300000);
    show("nothing there", posix_madvise((void *)65536, 4096, POSIX_MADV_WILLNEED), "", 0);
    return 0;
}
