#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    show("pread64", pread64(fd, buf, 300000, 131072), buf, 300000);
    show("position", lseek(fd, 0, SEEK_CUR), "", 0);
    show("negative", pread64(fd, buf, 10, -5), "", 0);
    show("nothing", pread64(fd, buf, 0, 0), "", 0);
    return 0;
}
