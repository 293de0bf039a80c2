#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    char *at = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 65536);
    show("madvise", madvise(at + 65536, 300000, MADV_WILLNEED), at + 65536, 300000);
    show("unaligned", madvise(at + 1, 10, MADV_WILLNEED), "", 0);
    show("nothing there", madvise((void *)65536, 4096, MADV_WILLNEED), "", 0);
    return 0;
}
