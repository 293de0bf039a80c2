#include "common.h"
// A host without standard input, output or error, and one that opens them again and again, while other threads read.
// argv[2]: none: 0 to 2 are closed for good. reopen: they are taken, and one thread does "close(1); open()" over and over.
static int fd;
static volatile int over;
static long written, got, elsewhere, wrong;
static uint64_t sums[CHUNKS];
static void *reader(void *unused)
{
    for (unsigned seed = 7 + (unsigned)(uintptr_t)unused; !over;) {
        int number = rand_r(&seed) % CHUNKS;
        posix_fadvise(fd, (off_t)number * CHUNK, CHUNK, POSIX_FADV_DONTNEED);
        if (chunk(fd, number) != sums[number])
            __sync_add_and_fetch(&wrong, 1);
    }
    return unused;
}
static void *logger(void *unused)
{
    while (!over)
        written += write(2, "a line of a log\n", 16) > 0;
    return unused;
}
static void *console(void *unused)
{
    char c;
    while (!over)
        got += read(0, &c, 1) > 0;
    return unused;
}
static void *reopener(void *unused)
{
    while (!over) {
        close(1);
        int again = open("/dev/null", O_RDWR);
        elsewhere += again != 1;
        if (again != 1) {
            dup2(again, 1);
            close(again);
        }
    }
    return unused;
}
int main(int argc, char **argv)
{
    fd = fcntl(open_file(argc, argv), F_DUPFD, 50);
    int out = fcntl(1, F_DUPFD, 60), none = !strcmp(argv[2], "none");
    for (int i = 0; i < CHUNKS; i++)
        sums[i] = chunk(fd, i);
    for (int i = 0; i < 4; i++)
        close(i);
    for (int i = 0; !none && i < 3; i++)
        open("/dev/null", O_RDWR);
    pthread_t threads[6];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, reader, (void *)(uintptr_t)i);
    pthread_create(&threads[4], NULL, none ? logger : reopener, NULL);
    if (none)
        pthread_create(&threads[5], NULL, console, NULL);
    usleep(1500000);
    over = 1;
    for (int i = 0; i < (none ? 6 : 5); i++)
        pthread_join(threads[i], NULL);
    dprintf(out, "written %ld got %ld elsewhere %ld wrong %ld\n", written, got, elsewhere, wrong);
    return 0;
}
