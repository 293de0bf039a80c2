//! The system call of a blocked thread.
//!
//! A pre-content event does not say whether its thread is about to read, write or map the file, and the three
//! need different things: a write of whole pages needs nothing read, a mapping covers far more than will be
//! touched, and a sendfile stops when its socket is full. The thread is blocked meanwhile, so
//! `/proc/TID/syscall` shows its call.

use std::fs;

/// What a thread is doing to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedCall {
    /// Reads exactly this range: `read`, `pread64`, `readv`, `preadv`, `preadv2`.
    Read,
    /// Reads as much of the range as the other side accepts: `sendfile`, `splice`, `copy_file_range`.
    Partial,
    /// Writes, allocates or truncates.
    Write,
    /// Maps.
    Map,
    /// Unknown: another call (io_uring), another architecture's numbers, no permission, or already running
    /// again.
    Unknown,
}

/// The call of the thread with this id (in our process namespace).
pub fn blocked_call(tid: i32) -> BlockedCall {
    if tid <= 0 {
        return BlockedCall::Unknown;
    }
    match fs::read_to_string(format!("/proc/{tid}/syscall")) {
        Ok(text) => parse(&text),
        Err(_) => BlockedCall::Unknown,
    }
}

/// The first word is the number of the call, or `running`.
fn parse(text: &str) -> BlockedCall {
    let number = text.split_ascii_whitespace().next().and_then(|word| word.parse::<libc::c_long>().ok());
    match number {
        Some(libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2) => {
            BlockedCall::Read
        }
        Some(libc::SYS_sendfile | libc::SYS_splice | libc::SYS_copy_file_range) => BlockedCall::Partial,
        Some(
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_fallocate
            | libc::SYS_ftruncate
            | libc::SYS_truncate,
        ) => BlockedCall::Write,
        Some(libc::SYS_mmap | libc::SYS_mremap | libc::SYS_remap_file_pages) => BlockedCall::Map,
        _ => BlockedCall::Unknown,
    }
}

/// Whether a thread belongs to this process.
pub fn is_own_thread(tid: i32) -> bool {
    tid > 0 && fs::exists(format!("/proc/self/task/{tid}")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_blocked_thread_tells_its_call() {
        let line = |n: libc::c_long| parse(&format!("{n} 0x3 0x7f 0x0 0x0 0x0 0x0 0x7ffd 0x7f\n"));
        assert_eq!(line(libc::SYS_pread64), BlockedCall::Read);
        assert_eq!(line(libc::SYS_sendfile), BlockedCall::Partial);
        assert_eq!(line(libc::SYS_pwritev2), BlockedCall::Write);
        assert_eq!(line(libc::SYS_mmap), BlockedCall::Map);
        for other in ["running\n", "-1 0x7ffd 0x7f\n", "", "x"] {
            assert_eq!(parse(other), BlockedCall::Unknown, "{other}");
        }
    }

    #[test]
    fn a_real_one_too() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            // A plain read(2), unlike a socket's own functions.
            std::fs::File::from(std::os::fd::OwnedFd::from(near)).read_exact(&mut [0]).unwrap();
        });
        let tid: i32 = told.recv().unwrap();
        assert!(is_own_thread(tid));
        assert!(!is_own_thread(1) || std::process::id() == 1);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut seen = blocked_call(tid);
        while seen != BlockedCall::Read && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
            seen = blocked_call(tid);
        }
        rustix::io::write(&far, b"x").unwrap();
        thread.join().unwrap();
        if fs::read_to_string("/proc/self/syscall").is_err() {
            println!("skipped: this kernel does not show system calls");
            return;
        }
        assert_eq!(seen, BlockedCall::Read);
    }
}
