#include "common.h"
static int body(int fd, const char *path)
{
    (void)path;
    lseek(fd, 65536, SEEK_SET);
    FILE *stream = fdopen(fd, "r");
    show("fread_unlocked", (long)fread_unlocked(buf, 1, 100000, stream), buf, 100000);
    show("a few bytes", (long)fread_unlocked(buf, 1, 8, stream), buf, 8);
    show("nothing", (long)fread_unlocked(buf, 1, 0, stream), "", 0);
    rewind(stream);
    fseek(stream, -10, SEEK_END);
    show("items at the end", (long)fread_unlocked(buf, 4, 10, stream), buf, 10);
    return 0;
}
