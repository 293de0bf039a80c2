#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    show("readahead", readahead(fd, 131072, 300000), "", 0);
    show("closed", readahead(999, 0, 1), "", 0);
    return 0;
}
