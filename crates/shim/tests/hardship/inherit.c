#include "sandbox.h"
// Becomes another program in a sandbox that allows what a loader and `follow` do, and nothing that a guest may like to do.
int main(int argc, char **argv)
{
    struct sock_filter rules[] = RULES(
        LITTLE, ALLOW(execve), ALLOW(openat), ALLOW(close), ALLOW(fstat), ALLOW(newfstatat), ALLOW(mmap), ALLOW(mprotect),
        ALLOW(arch_prctl), ALLOW(set_tid_address), ALLOW(set_robust_list), ALLOW(rseq), ALLOW(prlimit64), ALLOW(getrandom),
        ALLOW(access), ALLOW(lseek), ALLOW(ioctl));
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 98;
    execv(argv[1], argv + 1);
    return 97;
}
