#include "common.h"
// The daemon's path is out of sight after this.
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv);
    if (argc < 3 || chroot(argv[2]) || chdir("/"))
        return 3;
    for (int i = 0; i < 4; i++)
        printf("%lx\n", (unsigned long)chunk(fd, i * 16));
    return 0;
}
