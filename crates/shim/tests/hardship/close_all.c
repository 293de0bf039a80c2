#include "common.h"
// While one thread waits in a read, another closes every descriptor but the file's and takes the numbers for files of its
// own; those must still be its own when the wait is over.
static int fd;
static void *reader(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)chunk(fd, 33);
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    uint64_t second = chunk(fd, 1); // the settings are known after this
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    usleep(100000);
    int mine[8], wrong = 0;
    for (int i = 3; i < 1024; i++) // ours is among them
        if (i != fd)
            close(i);
    for (int i = 0; i < 8; i++)
        mine[i] = open(argv[1], O_RDONLY);
    void *sum;
    pthread_join(thread, &sum);
    for (int i = 0; i < 8; i++)
        wrong += chunk(mine[i], 1) != second;
    printf("%lx %lx wrong %d\n", (unsigned long)second, (unsigned long)sum, wrong);
    return 0;
}
