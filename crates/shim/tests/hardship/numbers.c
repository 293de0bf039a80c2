#include "common.h"
#include <sys/stat.h>
// Where the shim's descriptor is while a read waits: not among the numbers that the host is given. argv[2] is a limit of
// descriptors, or 0.
static int fd;
static void *reader(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)chunk(fd, 33);
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    int limit = atoi(argv[2]), low = 0;
    if (limit > 0)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){limit, limit});
    uint64_t first = chunk(fd, 1);
    int before = open("/dev/null", O_RDONLY);
    close(before);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    usleep(150000);
    int during = open("/dev/null", O_RDONLY);
    close(during);
    struct stat stat;
    for (int i = 3; i < (limit > 0 ? 3 : 64); i++)
        low += fstat(i, &stat) == 0 && S_ISSOCK(stat.st_mode);
    void *sum;
    pthread_join(thread, &sum);
    printf("%lx %lx another number %d low %d\n", (unsigned long)first, (unsigned long)sum, before != during, low);
    return 0;
}
