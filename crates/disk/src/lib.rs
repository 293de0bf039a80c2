//! Disks: list them, measure them, tune the kernel for them.
