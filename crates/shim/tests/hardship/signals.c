#include "common.h"
// A timer interrupts every wait, and its handler reads from the same cold file; with and without SA_RESTART, on the
// ordinary and on an alternate stack.
static int fd;
static volatile sig_atomic_t ticks, wrong;
static void tick(int signal)
{
    (void)signal;
    char byte;
    int error = errno;
    ticks++;
    if (pread(fd, &byte, 1, (off_t)(ticks % CHUNKS) * CHUNK) != 1)
        wrong++;
    errno = error;
}
static void round_of(const char *name, int flags)
{
    struct sigaction action = {.sa_handler = tick, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    setitimer(ITIMER_REAL, &often, NULL);
    uint64_t all = 0;
    for (int i = 0; i < CHUNKS; i++)
        all += chunk(fd, i);
    while (ticks < 3)
        ;
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%s: %lx wrong %d\n", name, (unsigned long)all, (int)wrong);
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    round_of("plain", 0);
    round_of("restart", SA_RESTART);
    stack_t stack = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
    sigaltstack(&stack, NULL);
    round_of("alternate stack", SA_ONSTACK);
    printf("descriptors %d\n", descriptors());
    return 0;
}
