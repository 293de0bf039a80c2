// A sandbox that allows what this program still does, and ends it at anything else.
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(name)                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

#define RULES(...)                                                                              \
    {                                                                                           \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), __VA_ARGS__,     \
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)                                 \
    }

#define LITTLE                                                                                          \
    ALLOW(pread64), ALLOW(read), ALLOW(write), ALLOW(writev), ALLOW(exit), ALLOW(exit_group), ALLOW(futex), \
        ALLOW(munmap), ALLOW(madvise), ALLOW(rt_sigprocmask), ALLOW(rt_sigreturn), ALLOW(brk)
