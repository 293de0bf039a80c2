#include "common.h"
// One thread closes and reuses numbers as fast as it can while others read through them. What those reads return is luck;
// that reads through numbers of one's own are right, and that no number is lost or closed for anybody, is not.
static const char *path;
static int shared = 100;
static volatile int stop;
static void *reuser(void *unused)
{
    for (int i = 0; i < 3000; i++) {
        int fd = open(i % 3 ? path : "/dev/null", O_RDONLY);
        dup2(fd, shared);
        close(fd);
        if (i % 7 == 0)
            close(shared);
        if (i % 50 == 0) {
            int all = open(path, O_RDONLY);
            posix_fadvise(all, 0, 0, POSIX_FADV_DONTNEED);
            close(all);
        }
    }
    stop = 1;
    return unused;
}
static void *reader(void *unused)
{
    for (int i = 0; !stop; i++)
        chunk(shared, i % CHUNKS);
    return unused;
}
static void *owner(void *unused)
{
    (void)unused;
    uintptr_t wrong = 0;
    uint64_t first = 0;
    while (!stop) {
        int fd = open(path, O_RDONLY);
        uint64_t sum = chunk(fd, 5);
        if (first == 0)
            first = sum;
        wrong += sum != first || sum == 0;
        wrong += close(fd) != 0;
    }
    return (void *)wrong;
}
int main(int argc, char **argv)
{
    path = argv[1];
    int fd = open_file(argc, argv);
    printf("%lx\n", (unsigned long)chunk(fd, 60)); // while all is quiet, so that the daemon is asked at least once
    close(fd);
    int before = descriptors();
    pthread_t t[4];
    pthread_create(&t[0], NULL, reuser, NULL);
    pthread_create(&t[1], NULL, reader, NULL);
    pthread_create(&t[2], NULL, reader, NULL);
    pthread_create(&t[3], NULL, owner, NULL);
    void *wrong = NULL;
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], &wrong);
    close(shared);
    printf("wrong %ld descriptors %d\n", (long)(intptr_t)wrong, descriptors() - before);
    return 0;
}
