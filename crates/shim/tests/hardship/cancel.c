#include "common.h"
// A thread cancelled while it waits inside the original read unwinds through the hook, and its cleanup runs.
static int p[2];
static volatile int cleaned;
static void cleanup(void *unused)
{
    (void)unused;
    cleaned++;
}
static void *waiter(void *unused)
{
    char byte;
    pthread_cleanup_push(cleanup, NULL);
    long got = read(p[0], &byte, 1);
    printf("never: %ld\n", got);
    pthread_cleanup_pop(0);
    return unused;
}
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv);
    if (pipe(p))
        return 3;
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waiter, NULL);
        usleep(5000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("cancelled %d cleaned %d chunk %lx\n", result == PTHREAD_CANCELED, cleaned, (unsigned long)chunk(fd, i));
    }
    return 0;
}
