// Programs that make life hard for a guest library. Each prints lines that do not depend on time or luck.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK 65536
#define CHUNKS 64 // of the 4 MiB file

static uint64_t sum_of(const void *bytes, size_t length)
{
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return sum;
}

// Checksum of one chunk of the file, 0 if it cannot be read whole.
static uint64_t chunk(int fd, int number)
{
    unsigned char buf[CHUNK];
    return pread(fd, buf, CHUNK, (off_t)number * CHUNK) == CHUNK ? sum_of(buf, CHUNK) : 0;
}

// Open descriptors of this process, so that none is left over or gone.
__attribute__((unused)) static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

static int open_file(int argc, char **argv)
{
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0)
        exit(99);
    return fd;
}
