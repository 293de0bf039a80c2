#include "common.h"
// Whether the bytes are there may differ from run to run; that it comes back and says so or reads them may not.
static int body(int fd, const char *path)
{
    (void)path;
    struct iovec v[1] = {{buf, 1000}};
    long got = preadv2(fd, v, 1, 131072, RWF_NOWAIT);
    show("preadv2", got == 1000 || (got == -1 && errno == EAGAIN), "", 0);
    return 0;
}
