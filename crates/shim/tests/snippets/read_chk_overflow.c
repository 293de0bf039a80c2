#include "common.h"
#include <signal.h>
extern ssize_t __read_chk(int, void *, size_t, size_t);
static void aborted(int signal)
{
    (void)signal;
    _exit(33);
}
static int body(int fd, const char *path)
{
    (void)path;
    signal(SIGABRT, aborted);
    show("__read_chk", __read_chk(fd, buf, 100, 10), "", 0);
    return 0;
}
