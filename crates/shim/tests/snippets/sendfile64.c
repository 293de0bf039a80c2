#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    FILE *out = tmpfile();
    off_t at = 131072;
    show("sendfile64", sendfile64(fileno(out), fd, &at, 300000), &at, sizeof at);
    show("position", lseek(fd, 0, SEEK_CUR), "", 0);
    show("offset nowhere", sendfile64(fileno(out), fd, (void *)8, 10), "", 0);
    show("out closed", sendfile64(999, fd, &at, 10), "", 0);
    rewind(out);
    show_stream("sent", out);
    return 0;
}
