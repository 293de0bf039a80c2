#include "common.h"
// Reads the chunk whose number it is told, and says so: a server, as far as the shim is concerned.
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv), number;
    while (scanf("%d", &number) == 1) {
        printf("%d %lx\n", number, (unsigned long)chunk(fd, number));
        fflush(stdout);
    }
    return 0;
}
