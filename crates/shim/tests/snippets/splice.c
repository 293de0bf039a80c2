#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    int p[2];
    off_t at = 131072;
    if (pipe(p))
        return 3;
    show("splice", splice(fd, &at, p[1], NULL, 50000, 0), &at, sizeof at);
    show("offset nowhere", splice(fd, (void *)8, p[1], NULL, 10, 0), "", 0);
    close(p[1]);
    show_stream("in the pipe", fdopen(p[0], "r"));
    return 0;
}
