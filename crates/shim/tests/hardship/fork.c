#include "common.h"
// Children read on while the parent reads, and while one of the parent's threads is in the middle of a read.
static int fd;
static void *reader(void *unused)
{
    (void)unused;
    uint64_t all = 0;
    for (int i = 0; i < 16; i++)
        all ^= chunk(fd, i);
    return (void *)(uintptr_t)(all & 0xffff);
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    pid_t child[6];
    for (int c = 0; c < 6; c++) {
        usleep(3000);
        child[c] = fork();
        if (child[c] == 0) {
            uint64_t all = 0;
            for (int i = 16 + c * 8; i < 24 + c * 8; i++)
                all ^= chunk(fd, i);
            _exit((int)(all & 0x7f));
        }
    }
    void *seen;
    pthread_join(thread, &seen);
    printf("thread %lx\n", (unsigned long)seen);
    for (int c = 0; c < 6; c++) {
        int status;
        waitpid(child[c], &status, 0);
        printf("child %d: %x\n", c, status);
    }
    printf("descriptors %d\n", descriptors());
    return 0;
}
