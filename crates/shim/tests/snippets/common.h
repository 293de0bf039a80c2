// One tiny program for each intercepted call. Each makes its calls on the file named by its first argument and prints what
// came back: result, errno, and a checksum of the bytes. With -DEARLY it is a shared object that does the same in a
// constructor, for programs that read before the shim's own constructor has run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static unsigned char buf[1 << 20];

static int body(int fd, const char *path);

__attribute__((unused)) static void show(const char *what, long result, const void *bytes, size_t length)
{
    int error = errno;
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    printf("%s: %ld errno %d sum %016llx\n", what, result, error, (unsigned long long)sum);
}

// What is in a pipe or a file, read by a way that is not intercepted.
__attribute__((unused)) static void show_stream(const char *what, FILE *stream)
{
    size_t n = fread(buf, 1, sizeof buf, stream);
    errno = 0;
    show(what, (long)n, buf, n);
}

static int begin(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 2;
    errno = 4242; // a call that succeeds must leave it alone
    int status = body(fd, argv[1]);
    fflush(stdout);
    return status;
}

#ifdef EARLY
__attribute__((constructor)) static void early(int argc, char **argv)
{
    printf("early: %d\n", begin(argc, argv));
    fflush(stdout);
}
#else
int main(int argc, char **argv)
{
    return begin(argc, argv);
}
#endif
