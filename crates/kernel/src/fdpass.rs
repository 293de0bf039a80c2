//! One packet, at most one descriptor: the Unix sockets between shim and daemon.
//!
//! `SOCK_SEQPACKET` keeps packets separate and in order. These common mistakes with passed descriptors are
//! ruled out here: a descriptor received without close-on-exec; a truncated control message, whose
//! descriptors leak; a second descriptor that was not requested; an unchecked peer.
//!
//! A daemon listens at a path and, under the same path's *twin* name, in the abstract namespace. A process
//! that has changed its root directory or dropped the right to search a folder can still reach the twin. Any
//! process may take an abstract name, so a client checks the peer's credentials ([`peer`]), which cannot be
//! forged.

use std::ffi::CStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Maximum length of a socket path (`sun_path` minus the terminating zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Prefix of the twin's abstract name; the path follows.
pub const TWIN_PREFIX: &[u8] = b"seekless:";

/// Number of descriptors that can be received. One is expected; with room for a few more, surplus descriptors
/// arrive, are counted and closed, instead of being cut off.
const DESCRIPTORS_MAX: usize = 4;

/// The abstract name that goes with a socket path.
#[derive(Clone, Copy, Debug)]
pub struct TwinName {
    bytes: [u8; SOCKET_PATH_BYTES_MAX],
    length: usize,
}

impl TwinName {
    /// The twin of `path`; `None` if prefix and path exceed the maximum length of a socket name.
    pub fn of(path: &CStr) -> Option<TwinName> {
        let path = path.to_bytes();
        let mut name = TwinName { bytes: [0; SOCKET_PATH_BYTES_MAX], length: TWIN_PREFIX.len() + path.len() };
        let (prefix, rest) = name.bytes.split_at_mut_checked(TWIN_PREFIX.len())?;
        prefix.copy_from_slice(TWIN_PREFIX);
        rest.get_mut(..path.len())?.copy_from_slice(path);
        Some(name)
    }

    /// The name, without the leading zero of abstract names.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// The address of a daemon.
#[derive(Clone, Copy, Debug)]
pub enum Address<'a> {
    /// A socket in the file system.
    Path(&'a CStr),
    /// The twin, in the abstract namespace.
    Twin(&'a TwinName),
}

impl Address<'_> {
    fn socket_addr(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Address::Path(path) => SocketAddrUnix::new(*path),
            Address::Twin(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }
}

fn socket(nonblocking: bool) -> Result<OwnedFd, Errno> {
    let flags = if nonblocking { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK } else { SocketFlags::CLOEXEC };
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A non-blocking connection, made at once or not at all.
///
/// # Errors
/// `ENOENT`, `EACCES`, `ECONNREFUSED`: no daemon there; `EAGAIN`: the daemon's backlog is full; `EMFILE`,
/// `ENFILE`: no descriptor left.
pub fn connect(address: Address<'_>) -> Result<OwnedFd, Errno> {
    let socket = socket(true)?;
    rustix::net::connect(&socket, &address.socket_addr()?)?;
    Ok(socket)
}

/// A non-blocking listening socket with at most `backlog` waiting connections. The caller must remove a dead
/// path first and set its permissions afterwards.
///
/// # Errors
/// `EADDRINUSE`: the path exists or the name is taken; those of `bind` and `listen`.
pub fn listen(address: Address<'_>, backlog: i32) -> Result<OwnedFd, Errno> {
    let socket = socket(true)?;
    rustix::net::bind(&socket, &address.socket_addr()?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// As [`listen`], at a listening socket that another process has made: makes it non-blocking, and from now on
/// peers that connect see this process's credentials ([`peer`]).
///
/// # Errors
/// `EINVAL`, `EOPNOTSUPP`: it is not a socket that can listen.
pub fn listen_again(listener: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(listener, true)?;
    rustix::net::listen(listener, backlog)
}

/// Whether this is a listening socket of the right kind: Unix domain, `SOCK_SEQPACKET`.
pub fn listens(socket: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket) == Ok(true)
        && rustix::net::sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
}

/// The next waiting connection, non-blocking and close-on-exec.
///
/// # Errors
/// `EAGAIN`: none waits; `EMFILE`: no descriptor left (the connection still waits).
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// The process at the other end, as of the time of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; 0 if outside our process namespace.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// The peer's credentials (`SO_PEERCRED`). For a connecting socket: those of the process that called
/// `listen`.
///
/// # Errors
/// Those of `getsockopt`; none on a connected Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of a structure of that length. (rustix's type for the
    // process id excludes zero, which it is for a peer in another process namespace.)
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut length,
        )
    };
    if done != 0 || length as usize != size_of::<libc::ucred>() {
        return Err(Errno::IO);
    }
    Ok(Peer { pid: cred.pid, uid: cred.uid, gid: cred.gid })
}

/// Sends one packet, with a descriptor if given. Raises no `SIGPIPE`.
///
/// # Errors
/// `EAGAIN`: the other side does not read; `EPIPE`, `ECONNRESET`: it is gone; `ETOOMANYREFS`: too many
/// descriptors of this user are in flight.
pub fn send(socket: BorrowedFd<'_>, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = descriptor.as_slice();
    if !passed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(Errno::NOBUFS);
    }
    let sent = rustix::net::sendmsg(
        socket,
        &[IoSlice::new(packet)],
        &mut control,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    if sent == packet.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Whether the other side has not read a packet that was sent here (`SIOCOUTQ`). A connection that waits to
/// be accepted reads nothing. `false` if the kernel does not report it.
pub fn unread(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: this request writes one integer.
    let bytes = unsafe { ioctl(socket, Getter::<{ libc::TIOCOUTQ as Opcode }, libc::c_int>::new()) };
    bytes.is_ok_and(|bytes| bytes > 0)
}

/// What waits to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Nothing,
    /// A packet of bytes only.
    Bytes,
    /// A packet with descriptors. Receiving it or closing the socket closes them, which can wait for any
    /// time, for the server of a file or for the peer of a socket.
    Descriptors,
}

/// Peeks at the next packet, without taking it or its descriptors.
pub fn waiting(socket: BorrowedFd<'_>) -> Waiting {
    let mut none = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut [0u8; 1])], &mut none, flags) {
        // There was no room for the descriptors.
        Ok(got) if got.flags.contains(ReturnFlags::CTRUNC) => Waiting::Descriptors,
        Ok(got) if got.bytes > 0 => Waiting::Bytes,
        _ => Waiting::Nothing,
    }
}

/// Ends a conversation and drops packets without descriptors. Returns whether nothing is left, so that
/// closing the socket does not wait.
pub fn dismiss(socket: BorrowedFd<'_>) -> bool {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    // The other side can send no more, and a queue has 10 packets by default.
    loop {
        match waiting(socket) {
            Waiting::Nothing => return true,
            Waiting::Descriptors => return false,
            Waiting::Bytes => {
                let _ = rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT);
            }
        }
    }
}

/// One received packet.
#[derive(Debug)]
pub struct Received {
    /// Its length; 0 if the other side has closed.
    pub length: usize,
    /// Its descriptor, close-on-exec.
    pub descriptor: Option<OwnedFd>,
}

/// Receives one packet without waiting.
///
/// # Errors
/// `EAGAIN`: none waits; `EMSGSIZE`: it is longer than `packet` (and is lost); `EPROTO`: it has more than one
/// descriptor; `EMFILE`: this process has no room for its descriptor. Descriptors of a refused packet are
/// closed.
pub fn receive(socket: BorrowedFd<'_>, packet: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut descriptor = None;
    let mut surplus = false;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for d in descriptors {
                surplus |= descriptor.replace(d).is_some();
            }
        }
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    if surplus {
        return Err(Errno::PROTO);
    }
    // There is room for more than one, so this process lacks descriptors; the sender did not send too many.
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok(Received { length: got.bytes, descriptor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn a_listening_socket_is_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().join("s").as_os_str().as_bytes()).unwrap();
        let listener = listen(Address::Path(&path), 4).unwrap();
        assert!(listens(listener.as_fd()));
        listen_again(listener.as_fd(), 8).unwrap();
        let connection = connect(Address::Path(&path)).unwrap();
        assert_eq!(peer(connection.as_fd()).unwrap().pid as u32, std::process::id());
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(!listens(connection.as_fd()) && !listens(tcp.as_fd()) && !listens(file.as_fd()));
    }

    #[test]
    fn a_descriptor_arrives_close_on_exec_and_is_the_same_file() {
        let (a, b) = pair();
        let file = tempfile::tempfile().unwrap();
        send(a.as_fd(), b"here", Some(file.as_fd())).unwrap();
        send(a.as_fd(), b"bare", None).unwrap();
        let mut buf = [0u8; 16];
        let got = receive(b.as_fd(), &mut buf).unwrap();
        assert_eq!(&buf[..got.length], b"here");
        let descriptor = got.descriptor.unwrap();
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let (x, y) = (rustix::fs::fstat(&descriptor).unwrap(), rustix::fs::fstat(&file).unwrap());
        assert_eq!((x.st_dev, x.st_ino), (y.st_dev, y.st_ino));
        let got = receive(b.as_fd(), &mut buf).unwrap();
        assert!(got.length == 4 && got.descriptor.is_none());
        assert_eq!(receive(b.as_fd(), &mut buf).unwrap_err(), Errno::AGAIN);
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut buf).unwrap().length, 0);
        assert!(matches!(send(b.as_fd(), b"x", None), Err(Errno::PIPE | Errno::CONNRESET)));
    }

    #[test]
    fn overlong_packets_and_surplus_descriptors_are_refused_and_closed() {
        let (a, b) = pair();
        let file = tempfile::tempfile().unwrap();
        let mut buf = [0u8; 8];
        send(a.as_fd(), &[0u8; 9], Some(file.as_fd())).unwrap();
        assert_eq!(receive(b.as_fd(), &mut buf).unwrap_err(), Errno::MSGSIZE);

        for count in [2, DESCRIPTORS_MAX + 2] {
            let mut space =
                [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let many = vec![file.as_fd(); count];
            assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
            rustix::net::sendmsg(&a, &[IoSlice::new(b"two")], &mut control, SendFlags::empty()).unwrap();
            assert_eq!(receive(b.as_fd(), &mut buf).unwrap_err(), Errno::PROTO);
        }
        // All were closed: no other descriptor of the file is left. (Counting the process's descriptors would
        // race with other tests; the file's own are found by inode.)
        let ours = rustix::fs::fstat(&file).unwrap();
        let held = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|e| std::fs::metadata(e.ok()?.path()).ok())
            .filter(|m| {
                use std::os::unix::fs::MetadataExt;
                (m.dev(), m.ino()) == (ours.st_dev, ours.st_ino)
            })
            .count();
        assert_eq!(held, 1, "of {} descriptors", open_descriptors());
    }

    #[test]
    fn path_and_twin_are_listened_at_and_show_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().join("d.sock").as_os_str().as_bytes()).unwrap();
        let twin = TwinName::of(&path).unwrap();
        for address in [Address::Path(&path), Address::Twin(&twin)] {
            assert!(matches!(connect(address), Err(Errno::NOENT | Errno::CONNREFUSED)));
            let listener = listen(address, 1).unwrap();
            let client = connect(address).unwrap();
            let peer = peer(client.as_fd()).unwrap();
            assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
            assert_eq!(peer.pid as u32, std::process::id());
            let server = accept(listener.as_fd()).unwrap();
            send(client.as_fd(), b"hi", None).unwrap();
            assert_eq!(receive(server.as_fd(), &mut [0u8; 4]).unwrap().length, 2);
            assert_eq!(accept(listener.as_fd()).unwrap_err(), Errno::AGAIN);
        }
    }

    /// Distinguishes a slow daemon from a socket without one.
    #[test]
    fn a_packet_is_unread_until_it_is_received() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().join("d.sock").as_os_str().as_bytes()).unwrap();
        let listener = listen(Address::Path(&path), 1).unwrap();
        let client = connect(Address::Path(&path)).unwrap();
        assert!(!unread(client.as_fd()), "nothing was sent");
        let file = tempfile::tempfile().unwrap();
        send(client.as_fd(), b"hi", Some(file.as_fd())).unwrap();
        assert!(unread(client.as_fd()), "nobody has accepted");
        let server = accept(listener.as_fd()).unwrap();
        assert!(unread(client.as_fd()), "accepted and not read");
        receive(server.as_fd(), &mut [0; 4]).unwrap();
        assert!(!unread(client.as_fd()));
    }

    #[test]
    fn what_waits_is_seen_without_taking_it() {
        let file = tempfile::tempfile().unwrap();
        let (a, b) = pair();
        assert_eq!(waiting(b.as_fd()), Waiting::Nothing);
        send(a.as_fd(), b"bare", None).unwrap();
        send(a.as_fd(), b"with", Some(file.as_fd())).unwrap();
        assert_eq!(waiting(b.as_fd()), Waiting::Bytes);
        assert!(receive(b.as_fd(), &mut [0; 8]).unwrap().descriptor.is_none());
        assert_eq!([waiting(b.as_fd()), waiting(b.as_fd())], [Waiting::Descriptors; 2]);
        assert!(receive(b.as_fd(), &mut [0; 8]).unwrap().descriptor.is_some());
        for descriptors in [false, true] {
            let (a, b) = pair();
            send(a.as_fd(), b"bare", None).unwrap();
            let fd = descriptors.then_some(file.as_fd());
            send(a.as_fd(), b"more", fd).unwrap();
            assert_eq!(dismiss(b.as_fd()), !descriptors);
            assert!(send(a.as_fd(), b"late", None).is_err(), "the other side knows");
        }
    }

    /// Lets a shim go on at once when the daemon is overloaded.
    #[test]
    fn a_full_backlog_refuses_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().join("d.sock").as_os_str().as_bytes()).unwrap();
        let _listener = listen(Address::Path(&path), 2).unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match connect(Address::Path(&path)) {
                Ok(c) if held.len() < 64 => held.push(c),
                Ok(_) => panic!("the backlog never fills"),
                Err(e) => break e,
            }
        };
        assert_eq!(refused, Errno::AGAIN);
    }

    #[test]
    fn a_long_path_has_no_twin() {
        let long = CString::new(vec![b'x'; SOCKET_PATH_BYTES_MAX]).unwrap();
        assert!(TwinName::of(&long).is_none());
        let fits = CString::new(vec![b'x'; SOCKET_PATH_BYTES_MAX - TWIN_PREFIX.len()]).unwrap();
        assert_eq!(TwinName::of(&fits).unwrap().as_bytes().len(), SOCKET_PATH_BYTES_MAX);
    }
}
