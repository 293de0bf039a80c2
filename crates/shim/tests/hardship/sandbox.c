#include "sandbox.h"
// Reads, puts itself into a sandbox, reads on. argv[2] says how it does that.
static int fd;
static void *reader(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)chunk(fd, 33);
}
int main(int argc, char **argv)
{
    fd = open_file(argc, argv);
    const char *how = argv[2];
    uint64_t before = chunk(fd, 1);
    void *other = NULL;
    pthread_t thread;
    if (!strcmp(how, "tsync")) {
        // It waits for the daemon when the filter comes.
        pthread_create(&thread, NULL, reader, NULL);
        usleep(200000);
    }
    if (!strcmp(how, "fork")) {
        int status = 0;
        if (fork() > 0) {
            wait(&status);
            printf("%d %lx\n", status, (unsigned long)chunk(fd, 40));
            return 0;
        }
    }
    printf("%lx\n", (unsigned long)before);
    fflush(stdout);
    struct sock_filter rules[] = RULES(LITTLE);
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long done = -1;
    if (!strcmp(how, "prctl") || !strcmp(how, "fork"))
        done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (!strcmp(how, "syscall_prctl"))
        done = syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    if (!strcmp(how, "seccomp"))
        done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (!strcmp(how, "tsync"))
        done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (!strcmp(how, "tsync"))
        pthread_join(thread, &other);
    uint64_t after = chunk(fd, 20);
    printf("%ld %lx %lx\n", done, (unsigned long)after, (unsigned long)(uintptr_t)other);
    fflush(stdout);
    _exit(0);
}
