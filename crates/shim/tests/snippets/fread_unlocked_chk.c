#include "common.h"
extern size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);
static int body(int fd, const char *path)
{
    (void)path;
    lseek(fd, 65536, SEEK_SET);
    FILE *stream = fdopen(fd, "r");
    show("__fread_unlocked_chk", (long)__fread_unlocked_chk(buf, sizeof buf, 1, 100000, stream), buf, 100000);
    show("a few bytes", (long)__fread_unlocked_chk(buf, sizeof buf, 1, 8, stream), buf, 8);
    show("nothing", (long)__fread_unlocked_chk(buf, sizeof buf, 1, 0, stream), "", 0);
    rewind(stream);
    fseek(stream, -10, SEEK_END);
    show("items at the end", (long)__fread_unlocked_chk(buf, sizeof buf, 4, 10, stream), buf, 10);
    return 0;
}
