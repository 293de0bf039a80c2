#include "common.h"
// Not one descriptor left: the shim cannot even ask, and the reads go through.
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv);
    struct rlimit limit = {32, 32};
    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(fd) >= 0)
        ;
    uint64_t all = 0;
    for (int i = 0; i < CHUNKS; i++)
        all += chunk(fd, i);
    printf("%lx\n", (unsigned long)all);
    return 0;
}
