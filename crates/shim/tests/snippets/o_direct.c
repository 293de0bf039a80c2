#include "common.h"
static int body(int fd, const char *path)
{
    (void)fd;
    int direct = open(path, O_RDONLY | O_DIRECT);
    if (direct < 0)
        return 0;
    void *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show("pread past the cache", pread(direct, at, 65536, 131072), at, 65536);
    return 0;
}
