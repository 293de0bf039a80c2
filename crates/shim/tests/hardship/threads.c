#include "common.h"
// Twelve threads over the same descriptor, in different orders.
static int fd;
static void *reader(void *which)
{
    uint64_t all = 0;
    for (int i = 0; i < CHUNKS; i++)
        all += chunk(fd, (i * 17 + (int)(intptr_t)which * 5) % CHUNKS);
    return (void *)(uintptr_t)all;
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    int before = descriptors();
    pthread_t thread[12];
    for (intptr_t i = 0; i < 12; i++)
        pthread_create(&thread[i], NULL, reader, (void *)i);
    for (int i = 0; i < 12; i++) {
        void *sum;
        pthread_join(thread[i], &sum);
        printf("thread %d: %lx\n", i, (unsigned long)sum);
    }
    printf("descriptors %d\n", descriptors() - before);
    return 0;
}
