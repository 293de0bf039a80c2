#include "common.h"
#include <sys/mman.h>
// Says how it reads its file, by one way after the other, and misses each time.
static int cold(int fd)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv);
    printf("%lx", (unsigned long)chunk(fd, 0));
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    printf(" %lx", (unsigned long)chunk(fd, 8));
    int again = open(argv[1], O_RDONLY);
    printf(" %lx", (unsigned long)chunk(again, 16));
    posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
    printf(" %lx", (unsigned long)chunk(fd, 24));
    char *map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 0);
    madvise(map, 1 << 20, MADV_RANDOM);
    printf(" %lx", (unsigned long)chunk(fd, 32));
    posix_fadvise64(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    printf(" %lx", (unsigned long)chunk(fd, 40));
    posix_madvise(map, 1 << 20, POSIX_MADV_RANDOM);
    printf(" %lx\n", (unsigned long)chunk(fd, 48));
    return cold(fd);
}
