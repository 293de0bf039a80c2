//! How long a hard disk takes. Pure: no I/O, no clock, no threads.
//! Must not know: descriptors, paths, sockets, threads, logging.
#![no_std]
extern crate alloc;
