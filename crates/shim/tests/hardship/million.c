#include "common.h"
// As many descriptors as the system allows (a million, often), and the highest of them read through.
int main(int argc, char **argv)
{
    int fd = open_file(argc, argv);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int most = limit.rlim_max > 1000000 ? 1000000 : (int)limit.rlim_max;
    int high = dup2(fd, most - 1);
    printf("allowed %d highest %d\n", most, high);
    for (int i = 0; i < CHUNKS; i++)
        printf("%lx\n", (unsigned long)chunk(i % 2 ? high : fd, i));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("memory %s\n", usage.ru_maxrss > 65536 ? "more than 64 MiB" : "small");
    return 0;
}
