#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    void *at = mmap(NULL, 300000, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 131072);
    show("mmap", at == MAP_FAILED, at, 300000);
    show("unaligned", (long)mmap(NULL, 10, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 5), "", 0);
    void *heap = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    show("anonymous", heap == MAP_FAILED, heap, 4096);
    return 0;
}
