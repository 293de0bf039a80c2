#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    char *at = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 65536);
    show("madvise", madvise(at + 65536, 300000, MADV_POPULATE_READ), at + 65536, 300000);
    return 0;
}
