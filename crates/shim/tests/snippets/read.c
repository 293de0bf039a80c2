#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    lseek(fd, 65536, SEEK_SET);
    show("read", read(fd, buf, 100000), buf, 100000);
    show("position", lseek(fd, 0, SEEK_CUR), "", 0);
    show("beyond the end", (lseek(fd, 1 << 30, SEEK_SET), read(fd, buf, 10)), "", 0);
    show("closed", read(999, buf, 10), "", 0);
    show("nowhere", (lseek(fd, 0, SEEK_SET), read(fd, (void *)8, 10)), "", 0);
    return 7;
}
