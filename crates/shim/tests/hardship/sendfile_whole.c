#include "common.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
// Sends a whole file by one call, as some servers do: into a file, then into a socket of which the other side takes all
// it gets, then into one that takes no more than its buffer holds and does not block.
static void *drain(void *socket)
{
    static char sink[1 << 16];
    long all = 0, n;
    while ((n = recv(*(int *)socket, sink, sizeof sink, 0)) > 0)
        all += n;
    return (void *)all;
}

int main(int argc, char **argv)
{
    int fd = open_file(argc, argv), pair[2];
    long size = lseek(fd, 0, SEEK_END);
    FILE *out = tmpfile();
    off_t at = 4096;
    errno = 4242;
    long sent = sendfile(fileno(out), fd, &at, 1L << 40);
    printf("file %ld at %ld errno %d\n", sent, (long)at, errno);
    lseek(fd, 0, SEEK_SET);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pthread_t thread;
    pthread_create(&thread, 0, drain, &pair[1]);
    sent = sendfile(pair[0], fd, NULL, size);
    shutdown(pair[0], SHUT_WR);
    void *all;
    pthread_join(thread, &all);
    printf("socket %ld came %ld at %ld errno %d\n", sent, (long)all, (long)lseek(fd, 0, SEEK_CUR), errno);
    at = 0;
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    sent = sendfile(pair[0], fd, &at, size);
    printf("full %d errno %d\n", sent > 0 && sent < size && sent == at, errno);
    errno = 0;
    printf("again %ld", (long)sendfile(pair[0], fd, &at, size));
    printf(" errno %d\n", errno);
    errno = 0;
    printf("negative %ld", (long)sendfile(fileno(out), fd, &at, -1L));
    printf(" errno %d\n", errno);
    return 0;
}
