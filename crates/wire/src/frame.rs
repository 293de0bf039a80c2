//! The frames, their layout and their encoding. Bodies of version 1, after the header:
//!
//! ```text
//!  1 Hello      pid u32, whose highest bit asks for the ring along
//!  2 Need       call u8, 0 u8 x3, pid u32, whose highest bit announces random reads, tid u32,
//!               offset u64, length u64                                             + one descriptor
//!  3 Tracked    call u8, resident u8, 0 u8 x2, pid u32, tid u32, device u64, inode u64,
//!               offset u64, length u64, duration_ns u64
//!  4 RingAsk    -
//!  5 FileSetAsk window_bytes u64
//!  6 FileSetAdd range u32, 0 u8 x4, offset u64, length u64, address u64            + one descriptor
//!  7 FileSetTook range u32, read u8, 0 u8 x3
//! 16 Working    -
//! 17 Answer     verdict u8, reason u8, mode u8, ring u8, device_ttl_ms u32, settings_ttl_ms u32,
//!               prefetch_bytes u64, whose highest bit asks for reads by the shim, resident_bytes u64
//! 18 Settings   mode u8, ring u8, 0 u8 x2, settings_ttl_ms u32, prefetch_bytes u64 as in Answer
//!                                                                       + the ring, if asked for
//! 19 Refuse     reason u8, 0 u8 x3, kind u16, 0 u16
//! 20 Ring       -                                                                  + one descriptor
//! 21 FileSet    reason u8, 0 u8 x3, ranges u32, window_bytes u64
//! 22 FileSetReady range u32, reason u8, 0 u8 x3
//! 32 StatusAsk  -
//! 33 StatusPart last u8, 0 u8 x3, index u32, text
//! 34 PassAll    lease_ms u32
//! 35 TakeOver   step u8, ring u8, 0 u8 x2                              + one descriptor in some steps
//! 36 Release    device u64
//! 37 Challenge  nonce u64
//! 38 Proof      digest u8 x16
//! ```
//! Bytes shown as 0 are written as zero and must be zero. A later version may use them.

use crate::bytes::{Reader, Writer};
use crate::header::{FRAME_BYTES_MAX, HEADER_BYTES, Header, VERSION_OLDEST, Versions};
use crate::status::STATUS_PART_BYTES_MAX;
use crate::words::{Call, Mode, PassReason, RefuseReason, TakeOverStep, Verdict};
use crate::{DecodeError, VERSION};

/// "These bytes are not resident; tell me when they are." Sent with one descriptor, open for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The waiting call.
    pub call: Call,
    /// Its process id in the sender's namespace, for statistics only; access checks use the socket's
    /// credentials. The highest bit is [`Need::reads_at_random`].
    pub pid: u32,
    /// Its thread id, likewise.
    pub tid: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes wanted, cut at the end of the file; never zero.
    pub length: u64,
}

impl Need {
    /// Sets whether the process announced random reads of the file (`POSIX_FADV_RANDOM`). An older daemon
    /// ignores it.
    pub const fn at_random(self, random: bool) -> Need {
        let pid = self.pid & !PID_FLAG | if random { PID_FLAG } else { 0 };
        Need { pid, ..self }
    }

    /// Whether the process announced random reads.
    pub const fn reads_at_random(&self) -> bool {
        self.pid & PID_FLAG != 0
    }
}

/// A call and its duration, reported afterwards (mode `track`; the latency profile of Libception's Fig. 17).
/// No answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The call.
    pub call: Call,
    /// Whether all its bytes were resident before it ran.
    pub resident: bool,
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// `st_dev` of the file.
    pub device: u64,
    /// `st_ino` of the file.
    pub inode: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes requested, cut at the end of the file.
    pub length: u64,
    /// Duration of the original call in nanoseconds.
    pub duration_ns: u64,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Resident, or pass.
    pub verdict: Verdict,
    /// Why pass; [`PassReason::None`] when resident.
    pub reason: PassReason,
    /// The mode from now on.
    pub mode: Mode,
    /// Leave the device of this file alone for this many milliseconds; 0: do not.
    pub device_ttl_ms: u32,
    /// Validity of `mode` and `prefetch_bytes`, in milliseconds.
    pub settings_ttl_ms: u32,
    /// Enlarged length of a read in mode `prefetch`.
    pub prefetch_bytes: u64,
    /// See [`Settings::ring`].
    pub ring: u8,
    /// Bytes from the need's offset on that are known to be resident; 0: not known. A shim that cannot check
    /// residency itself (the kernel shows it to owners and writers only) stores it.
    pub resident_bytes: u64,
}

impl Answer {
    /// "Go on without us", with nothing to store; the settings are valid for `settings_ttl_ms`.
    pub const fn pass(reason: PassReason, settings: Settings) -> Answer {
        Answer {
            verdict: Verdict::Pass,
            reason,
            mode: settings.mode,
            ring: settings.ring,
            device_ttl_ms: 0,
            settings_ttl_ms: settings.settings_ttl_ms,
            prefetch_bytes: settings.prefetch_bytes,
            resident_bytes: 0,
        }
    }

    /// "The bytes are there": `resident_bytes` from the need's offset on.
    pub const fn resident(resident_bytes: u64, settings: Settings) -> Answer {
        Answer {
            verdict: Verdict::Resident,
            reason: PassReason::None,
            mode: settings.mode,
            ring: settings.ring,
            device_ttl_ms: 0,
            settings_ttl_ms: settings.settings_ttl_ms,
            prefetch_bytes: settings.prefetch_bytes,
            resident_bytes,
        }
    }

    /// The settings in the answer.
    pub const fn settings(&self) -> Settings {
        Settings {
            mode: self.mode,
            ring: self.ring,
            settings_ttl_ms: self.settings_ttl_ms,
            prefetch_bytes: self.prefetch_bytes,
        }
    }
}

/// A range of a file of the connection's file set. Sent with one descriptor, open for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetAdd {
    /// Its number, chosen by the sender; must not be used again before the range was taken.
    pub range: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes wanted, cut at the end of the file; never zero.
    pub length: u64,
    /// Disk address of the first byte, in bytes, or [`ADDRESS_UNKNOWN`]. Only the order of reads depends on
    /// it.
    pub address: u64,
}

/// [`FileSetAdd::address`] of a range whose place on the disk is unknown.
pub const ADDRESS_UNKNOWN: u64 = u64::MAX;

/// The answer to [`Frame::FileSetAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// [`PassReason::None`]: the connection now has a file set. Otherwise the reason why not.
    pub reason: PassReason,
    /// Maximum number of ranges added and not taken.
    pub ranges: u32,
    /// Maximum of bytes in memory that are not taken.
    pub window_bytes: u64,
}

/// The end of the wait for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetReady {
    /// Which range.
    pub range: u32,
    /// [`PassReason::None`]: its bytes are in memory, and stay there until they are taken, as far as the
    /// kernel allows. Otherwise the reader reads for itself.
    pub reason: PassReason,
}

/// How the shim must behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The mode.
    pub mode: Mode,
    /// The ring through which to report reads; 0: none. A changed number means another ring, which `RingAsk`
    /// requests.
    pub ring: u8,
    /// Validity in milliseconds.
    pub settings_ttl_ms: u32,
    /// Enlarged length of a read in mode `prefetch`. The highest bit is [`Settings::shim_reads`].
    pub prefetch_bytes: u64,
}

impl Settings {
    /// Sets whether the shim reads the enlarged range itself in mode `prefetch`, instead of asking the kernel
    /// to read ahead. An older shim takes that for a very long range, and bounds it as any.
    pub const fn by_reads(self, reads: bool) -> Settings {
        let prefetch_bytes = self.prefetch_bytes & !READS_FLAG | if reads { READS_FLAG } else { 0 };
        Settings { prefetch_bytes, ..self }
    }

    /// Whether the shim reads the enlarged range itself.
    pub const fn shim_reads(&self) -> bool {
        self.prefetch_bytes & READS_FLAG != 0
    }

    /// The enlarged length without the flag.
    pub const fn enlarged_bytes(&self) -> u64 {
        self.prefetch_bytes & !READS_FLAG
    }
}

/// "I do not understand"; the range in the header says which versions would be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// What was wrong.
    pub reason: RefuseReason,
    /// The refused kind, 0 if unknown.
    pub kind: u16,
}

/// A piece of the status text. Pieces come in order, `index` from 0; the joined text is UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPart<'a> {
    /// Number of the piece.
    pub index: u32,
    /// Whether this is the last piece.
    pub last: bool,
    /// The piece, at most [`STATUS_PART_BYTES_MAX`](crate::STATUS_PART_BYTES_MAX).
    pub text: &'a [u8],
}

/// A flag in a process id: those are below 2^22.
const PID_FLAG: u32 = 1 << 31;
/// A flag in a length: no file is that long.
const READS_FLAG: u64 = 1 << 63;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Shim to daemon: asks for the settings. Answered by `Settings`.
    Hello {
        /// The asking process.
        pid: u32,
        /// Whether the ring may come with the settings. An older daemon ignores it.
        ring: bool,
    },
    /// Shim to daemon, with a descriptor.
    Need(Need),
    /// Shim to daemon, unanswered.
    Tracked(Tracked),
    /// Shim to daemon: asks for the ring.
    RingAsk,
    /// Program to daemon: asks for a file set for this connection, with a window of this size. Answered by
    /// `FileSet`.
    FileSetAsk {
        /// Maximum of bytes that the program wants in memory and not taken.
        window_bytes: u64,
    },
    /// Program to daemon, with a descriptor. Answered by `FileSetReady`, in disk order.
    FileSetAdd(FileSetAdd),
    /// Program to daemon, unanswered: a range was read, or never will be.
    FileSetTook {
        /// Which range.
        range: u32,
        /// Whether it was read.
        read: bool,
    },
    /// Daemon to shim: still in progress.
    Working,
    /// Daemon to shim: done.
    Answer(Answer),
    /// Daemon to shim.
    Settings(Settings),
    /// Either way.
    Refuse(Refuse),
    /// Daemon to shim, with the descriptor of the ring that reads are reported through.
    Ring,
    /// Daemon to program.
    FileSet(FileSet),
    /// Daemon to program.
    FileSetReady(FileSetReady),
    /// Any tool to daemon: asks for the status. Answered by `StatusPart`s.
    StatusAsk,
    /// Daemon to tool.
    StatusPart(StatusPart<'a>),
    /// Tool to daemon: pass every call for this long; and the daemon's echo. Only for root and the daemon's
    /// own user.
    PassAll {
        /// Milliseconds; 0: serve again; [`PASS_ALL_UNTIL_TOLD`].
        lease_ms: u32,
    },
    /// Tool to daemon: release every file of this file system; and the daemon's echo, once none is open any
    /// more. Only for root and the daemon's own user.
    Release {
        /// `st_dev` of its files.
        device: u64,
    },
    /// Shim to daemon, only at the abstract twin of the socket: prove that you know the key beside the
    /// socket. Any process may take an abstract name.
    Challenge {
        /// A new number each time.
        nonce: u64,
    },
    /// The daemon's answer.
    Proof {
        /// The first bytes of SHA-256 of the key followed by the nonce in little-endian order.
        digest: [u8; 16],
    },
    /// Between a daemon and its successor, both of the same user ([`TakeOverStep`]).
    TakeOver {
        /// The step.
        step: TakeOverStep,
        /// With [`TakeOverStep::Offered`]: the last number given to a ring, from which the new daemon counts
        /// on. Otherwise 0.
        ring: u8,
    },
}

/// A lease without an end.
pub const PASS_ALL_UNTIL_TOLD: u32 = u32::MAX;

/// A frame's bytes, on the stack.
#[derive(Clone, Copy)]
pub struct FrameBuf {
    bytes: [u8; FRAME_BYTES_MAX],
    length: usize,
}

impl FrameBuf {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl<'a> Frame<'a> {
    /// The frame's kind number.
    pub const fn kind(&self) -> u16 {
        self.number_and_name().0
    }

    /// Its name, for messages and logs.
    pub const fn name(&self) -> &'static str {
        self.number_and_name().1
    }

    const fn number_and_name(&self) -> (u16, &'static str) {
        match self {
            Frame::Hello { .. } => (1, "Hello"),
            Frame::Need(_) => (2, "Need"),
            Frame::Tracked(_) => (3, "Tracked"),
            Frame::RingAsk => (4, "RingAsk"),
            Frame::FileSetAsk { .. } => (5, "FileSetAsk"),
            Frame::FileSetAdd(_) => (6, "FileSetAdd"),
            Frame::FileSetTook { .. } => (7, "FileSetTook"),
            Frame::Working => (16, "Working"),
            Frame::Answer(_) => (17, "Answer"),
            Frame::Settings(_) => (18, "Settings"),
            Frame::Refuse(_) => (19, "Refuse"),
            Frame::Ring => (20, "Ring"),
            Frame::FileSet(_) => (21, "FileSet"),
            Frame::FileSetReady(_) => (22, "FileSetReady"),
            Frame::StatusAsk => (32, "StatusAsk"),
            Frame::StatusPart(_) => (33, "StatusPart"),
            Frame::PassAll { .. } => (34, "PassAll"),
            Frame::TakeOver { .. } => (35, "TakeOver"),
            Frame::Release { .. } => (36, "Release"),
            Frame::Challenge { .. } => (37, "Challenge"),
            Frame::Proof { .. } => (38, "Proof"),
        }
    }

    /// Whether exactly one descriptor must come with it. All other frames come without, except that
    /// `Settings` may have the ring that `Hello` asked for.
    pub const fn carries_descriptor(&self) -> bool {
        match self {
            Frame::Need(_) | Frame::Ring | Frame::FileSetAdd(_) => true,
            Frame::TakeOver { step, .. } => step.carries_descriptor(),
            _ => false,
        }
    }

    /// Writes the frame into `out` and returns the bytes used; `None` if they do not fit or a status piece is
    /// too long. A refusal is written in the oldest version, everything else in the newest.
    pub fn encode_into<'b>(&self, out: &'b mut [u8]) -> Option<&'b [u8]> {
        let version = if matches!(self, Frame::Refuse(_)) { VERSION_OLDEST } else { VERSION };
        let mut w = Writer { buf: out.get_mut(HEADER_BYTES..)?, at: 0, overflow: false };
        self.encode_body(&mut w);
        if w.overflow {
            return None;
        }
        let length = HEADER_BYTES + w.at;
        let header = Header { version, senders: Versions::OURS, kind: self.kind(), length: length as u32 };
        let mut w = Writer { buf: out, at: 0, overflow: false };
        header.encode(&mut w);
        if w.overflow || length > FRAME_BYTES_MAX {
            return None;
        }
        out.get(..length)
    }

    /// The frame as bytes on the stack; `None` as in [`Frame::encode_into`], so only for a status piece that
    /// is too long.
    pub fn encode(&self) -> Option<FrameBuf> {
        let mut buf = FrameBuf { bytes: [0; FRAME_BYTES_MAX], length: 0 };
        buf.length = self.encode_into(&mut buf.bytes)?.len();
        Some(buf)
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        match *self {
            Frame::Hello { pid, ring } => w.u32(pid & !PID_FLAG | if ring { PID_FLAG } else { 0 }),
            Frame::PassAll { lease_ms } => w.u32(lease_ms),
            Frame::TakeOver { step, ring } => w.put(&[step.number(), ring, 0, 0]),
            Frame::Release { device } => w.u64(device),
            Frame::Challenge { nonce } => w.u64(nonce),
            Frame::Proof { digest } => w.put(&digest),
            Frame::Need(n) => {
                w.put(&[n.call.number(), 0, 0, 0]);
                w.u32(n.pid);
                w.u32(n.tid);
                w.u64(n.offset);
                w.u64(n.length);
            }
            Frame::Tracked(t) => {
                w.put(&[t.call.number(), t.resident as u8, 0, 0]);
                w.u32(t.pid);
                w.u32(t.tid);
                w.u64(t.device);
                w.u64(t.inode);
                w.u64(t.offset);
                w.u64(t.length);
                w.u64(t.duration_ns);
            }
            Frame::Working | Frame::RingAsk | Frame::Ring | Frame::StatusAsk => {}
            Frame::FileSetAsk { window_bytes } => w.u64(window_bytes),
            Frame::FileSetAdd(a) => {
                w.u32(a.range);
                w.u32(0);
                w.u64(a.offset);
                w.u64(a.length);
                w.u64(a.address);
            }
            Frame::FileSetTook { range, read } => {
                w.u32(range);
                w.put(&[read as u8, 0, 0, 0]);
            }
            Frame::FileSet(s) => {
                w.put(&[s.reason.number(), 0, 0, 0]);
                w.u32(s.ranges);
                w.u64(s.window_bytes);
            }
            Frame::FileSetReady(r) => {
                w.u32(r.range);
                w.put(&[r.reason.number(), 0, 0, 0]);
            }
            Frame::Answer(a) => {
                w.put(&[a.verdict.number(), a.reason.number(), a.mode.number(), a.ring]);
                w.u32(a.device_ttl_ms);
                w.u32(a.settings_ttl_ms);
                w.u64(a.prefetch_bytes);
                w.u64(a.resident_bytes);
            }
            Frame::Settings(s) => {
                w.put(&[s.mode.number(), s.ring, 0, 0]);
                w.u32(s.settings_ttl_ms);
                w.u64(s.prefetch_bytes);
            }
            Frame::Refuse(r) => {
                w.put(&[r.reason.number(), 0, 0, 0]);
                w.u16(r.kind);
                w.u16(0);
            }
            Frame::StatusPart(p) => {
                w.u8(p.last as u8);
                w.put(&[0, 0, 0]);
                w.u32(p.index);
                w.put(p.text);
                w.overflow |= p.text.len() > STATUS_PART_BYTES_MAX;
            }
        }
    }

    /// Decodes one packet. Never panics, whatever the bytes.
    pub fn decode(packet: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
        Frame::decode_with_versions(packet).map(|(frame, _)| frame)
    }

    /// Decodes one packet, and the range of versions that its sender speaks.
    pub fn decode_with_versions(packet: &'a [u8]) -> Result<(Frame<'a>, Versions), DecodeError> {
        let (header, body) = Header::decode(packet)?;
        let mut r = Reader(body);
        let short = DecodeError::Truncated {
            have: packet.len(),
            want: HEADER_BYTES + body_bytes(header.kind).unwrap_or(0),
        };
        let frame = decode_body(header.kind, &mut r, short)?;
        let left = r.rest().len();
        if left != 0 {
            return Err(DecodeError::Oversize { have: packet.len(), max: packet.len().saturating_sub(left) });
        }
        Ok((frame, header.senders))
    }
}

/// Minimum length of a body of this kind; `None` if the kind is unknown.
const fn body_bytes(kind: u16) -> Option<usize> {
    Some(match kind {
        1 | 34 | 35 => 4,
        2 => 28,
        3 => 52,
        4 | 16 | 20 | 32 => 0,
        5 | 7 | 22 | 36 => 8,
        6 => 32,
        21 => 16,
        17 => 28,
        18 => 16,
        19 => 8,
        33 => 8,
        _ => return None,
    })
}

fn decode_body<'a>(kind: u16, r: &mut Reader<'a>, short: DecodeError) -> Result<Frame<'a>, DecodeError> {
    // Each field is read in order; running out at any of them is the same error.
    macro_rules! take {
        ($width:ident) => {
            r.$width().ok_or(short)?
        };
    }
    macro_rules! zero {
        ($width:ident) => {{
            let value = take!($width) as u64;
            if value != 0 {
                return Err(DecodeError::Field { name: "reserved", value });
            }
        }};
    }
    Ok(match kind {
        1 => {
            let word = take!(u32);
            Frame::Hello { pid: word & !PID_FLAG, ring: word & PID_FLAG != 0 }
        }
        2 => {
            let call = Call::decode(take!(u8))?;
            zero!(u8);
            zero!(u16);
            let need =
                Need { call, pid: take!(u32), tid: take!(u32), offset: take!(u64), length: take!(u64) };
            check_range(need.offset, need.length)?;
            Frame::Need(need)
        }
        3 => {
            let call = Call::decode(take!(u8))?;
            let resident = flag("resident", take!(u8))?;
            zero!(u16);
            Frame::Tracked(Tracked {
                call,
                resident,
                pid: take!(u32),
                tid: take!(u32),
                device: take!(u64),
                inode: take!(u64),
                offset: take!(u64),
                length: take!(u64),
                duration_ns: take!(u64),
            })
        }
        4 => Frame::RingAsk,
        5 => Frame::FileSetAsk { window_bytes: take!(u64) },
        6 => {
            let range = take!(u32);
            zero!(u32);
            let (offset, length) = (take!(u64), take!(u64));
            check_range(offset, length)?;
            Frame::FileSetAdd(FileSetAdd { range, offset, length, address: take!(u64) })
        }
        7 => {
            let (range, read) = (take!(u32), flag("read", take!(u8))?);
            zero!(u8);
            zero!(u16);
            Frame::FileSetTook { range, read }
        }
        16 => Frame::Working,
        17 => {
            let (verdict, reason) = (Verdict::decode(take!(u8))?, PassReason::decode(take!(u8))?);
            let (mode, ring) = (Mode::decode(take!(u8))?, take!(u8));
            Frame::Answer(Answer {
                verdict,
                reason,
                mode,
                ring,
                device_ttl_ms: take!(u32),
                settings_ttl_ms: take!(u32),
                prefetch_bytes: take!(u64),
                resident_bytes: take!(u64),
            })
        }
        18 => {
            let (mode, ring) = (Mode::decode(take!(u8))?, take!(u8));
            zero!(u16);
            Frame::Settings(Settings { mode, ring, settings_ttl_ms: take!(u32), prefetch_bytes: take!(u64) })
        }
        19 => {
            let reason = RefuseReason::decode(take!(u8))?;
            zero!(u8);
            zero!(u16);
            let kind = take!(u16);
            zero!(u16);
            Frame::Refuse(Refuse { reason, kind })
        }
        20 => Frame::Ring,
        21 => {
            let reason = PassReason::decode(take!(u8))?;
            zero!(u8);
            zero!(u16);
            Frame::FileSet(FileSet { reason, ranges: take!(u32), window_bytes: take!(u64) })
        }
        22 => {
            let (range, reason) = (take!(u32), PassReason::decode(take!(u8))?);
            zero!(u8);
            zero!(u16);
            Frame::FileSetReady(FileSetReady { range, reason })
        }
        32 => Frame::StatusAsk,
        34 => Frame::PassAll { lease_ms: take!(u32) },
        35 => {
            let (step, ring) = (TakeOverStep::decode(take!(u8))?, take!(u8));
            zero!(u16);
            Frame::TakeOver { step, ring }
        }
        36 => Frame::Release { device: take!(u64) },
        37 => Frame::Challenge { nonce: take!(u64) },
        38 => {
            let halves = [take!(u64), take!(u64)].map(u64::to_le_bytes);
            let mut digest = [0; 16];
            digest.iter_mut().zip(halves.as_flattened()).for_each(|(to, from)| *to = *from);
            Frame::Proof { digest }
        }
        33 => {
            let last = flag("last", take!(u8))?;
            zero!(u8);
            zero!(u16);
            let index = take!(u32);
            Frame::StatusPart(StatusPart { index, last, text: r.rest() })
        }
        unknown => return Err(DecodeError::Kind(unknown)),
    })
}

/// Checks that a range is not empty and lies within the largest possible file.
fn check_range(offset: u64, length: u64) -> Result<(), DecodeError> {
    if length == 0 {
        return Err(DecodeError::Field { name: "length", value: 0 });
    }
    match offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
        true => Err(DecodeError::Field { name: "offset", value: offset }),
        false => Ok(()),
    }
}

fn flag(name: &'static str, value: u8) -> Result<bool, DecodeError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::Field { name, value: other as u64 }),
    }
}
