//! policy x kernel: real disks, real time.
