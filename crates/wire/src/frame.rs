//! The frames, their layout and their encoding.
//!
//! The body of a frame, after the header, has the fields in the order in which they are declared here,
//! without gaps, little-endian. `=> n` behind a field stands for n bytes that are written as zero and must be
//! zero. A later version may use them.

use crate::bytes::{Field, Reader, Writer};
use crate::header::{FRAME_BYTES_MAX, HEADER_BYTES, Header, VERSION_OLDEST, Versions};
use crate::words::{Call, Mode, PassReason, RefuseReason, TakeOverStep, Verdict};
use crate::{DecodeError, VERSION};

/// A structure of fields, which is a body or a part of one.
macro_rules! body {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(=> $zeros:literal)?,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* pub $field: $type,)* }

        impl<'a> Field<'a> for $name $(<$life>)? {
            const BYTES: usize = 0 $(+ <$type as Field>::BYTES $(+ $zeros)?)*;

            fn write(self, w: &mut Writer<'_>) {
                $(self.$field.write(w); $(w.zeros::<$zeros>();)?)*
            }

            fn read(r: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
                $(let $field = Field::read(r, stringify!($field))?; $(r.zeros::<$zeros>()?;)?)*
                Ok($name { $($field),* })
            }
        }
    };
}

/// The frames: number, name, and either a body or its fields.
macro_rules! frames {
    ($($(#[$doc:meta])* $number:literal $name:ident $(($one:ident: $body:ty))? $({
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(=> $zeros:literal)?,)*
    })?;)*) => {
        /// One frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Frame<'a> {
            $($(#[$doc])* $name $(($body))? $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        impl<'a> Frame<'a> {
            /// The kind's number.
            pub const fn kind(&self) -> u16 {
                match self { $(Frame::$name { .. } => $number,)* }
            }

            /// The kind's name.
            pub const fn name(&self) -> &'static str {
                match self { $(Frame::$name { .. } => stringify!($name),)* }
            }

            fn write_body(&self, w: &mut Writer<'_>) {
                match *self {
                    $(Frame::$name $(($one))? $({ $($field),* })? => {
                        $($one.write(w);)? $($($field.write(w); $(w.zeros::<$zeros>();)?)*)?
                    })*
                }
            }

            fn read_body(kind: u16, r: &mut Reader<'a>) -> Result<Frame<'a>, DecodeError> {
                Ok(match kind {
                    $($number => {
                        $(let $one = Field::read(r, "")?;)?
                        $($(let $field = Field::read(r, stringify!($field))?; $(r.zeros::<$zeros>()?;)?)*)?
                        Frame::$name $(($one))? $({ $($field),* })?
                    })*
                    unknown => return Err(DecodeError::Kind(unknown)),
                })
            }

            /// Size of the fixed part of a body; `None` for an unknown kind.
            const fn body_bytes(kind: u16) -> Option<usize> {
                Some(match kind {
                    $($number => 0 $(+ <$body as Field>::BYTES)? $($(+ <$type as Field>::BYTES $(+ $zeros)?)*)?,)*
                    _ => return None,
                })
            }
        }
    };
}

body! {
    /// "These bytes are not resident; tell me when they are." Sent with one descriptor, open for reading.
    Need {
        /// The waiting call.
        call: Call => 3,
        /// Its process id in the sender's namespace, for statistics only; access checks use the socket's
        /// credentials. The highest bit is [`Need::reads_at_random`].
        pid: u32,
        /// Its thread id, likewise.
        tid: u32,
        /// First byte in the file.
        offset: u64,
        /// Bytes wanted, cut at the end of the file; never zero.
        length: u64,
    }
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

body! {
    /// A call and its duration, reported afterwards (mode `track`; the latency profile of Libception's
    /// Fig. 17). No answer.
    Tracked {
        /// The call.
        call: Call,
        /// Whether all its bytes were resident before it ran.
        resident: bool => 2,
        /// Its process.
        pid: u32,
        /// Its thread.
        tid: u32,
        /// `st_dev` of the file.
        device: u64,
        /// `st_ino` of the file.
        inode: u64,
        /// First byte.
        offset: u64,
        /// Bytes requested, cut at the end of the file.
        length: u64,
        /// Duration of the original call in nanoseconds.
        duration_ns: u64,
    }
}

body! {
    /// The end of a wait.
    Answer {
        /// Resident, or pass.
        verdict: Verdict,
        /// Why pass; [`PassReason::None`] when resident.
        reason: PassReason,
        /// The mode from now on.
        mode: Mode,
        /// See [`Settings::ring`].
        ring: u8,
        /// Leave the device of this file alone for this many milliseconds; 0: do not.
        device_ttl_ms: u32,
        /// Validity of `mode` and `prefetch_bytes`, in milliseconds.
        settings_ttl_ms: u32,
        /// Enlarged length of a read in mode `prefetch`.
        prefetch_bytes: u64,
        /// Bytes from the need's offset on that are known to be resident; 0: not known. A shim that cannot
        /// check residency itself (the kernel shows it to owners and writers only) stores it.
        resident_bytes: u64,
    }
}

impl Answer {
    /// "Go on without us", with nothing to store; the settings are valid for `settings_ttl_ms`.
    pub const fn pass(reason: PassReason, settings: Settings) -> Answer {
        Answer { verdict: Verdict::Pass, reason, ..Answer::resident(0, settings) }
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

body! {
    /// A range of a file of the connection's file set. Sent with one descriptor, open for reading.
    FileSetAdd {
        /// Its number, chosen by the sender; must not be used again before the range was taken.
        range: u32 => 4,
        /// First byte in the file.
        offset: u64,
        /// Bytes wanted, cut at the end of the file; never zero.
        length: u64,
        /// Disk address of the first byte, in bytes, or [`ADDRESS_UNKNOWN`]. Only the order of reads
        /// depends on it.
        address: u64,
    }
}

/// [`FileSetAdd::address`] of a range whose place on the disk is unknown.
pub const ADDRESS_UNKNOWN: u64 = u64::MAX;

body! {
    /// The answer to [`Frame::FileSetAsk`].
    FileSet {
        /// [`PassReason::None`]: the connection now has a file set. Otherwise the reason why not.
        reason: PassReason => 3,
        /// Maximum number of ranges added and not taken.
        ranges: u32,
        /// Maximum of bytes in memory that are not taken.
        window_bytes: u64,
    }
}

body! {
    /// The end of the wait for a range.
    FileSetReady {
        /// Which range.
        range: u32,
        /// [`PassReason::None`]: its bytes are in memory, and stay there until they are taken, as far as the
        /// kernel allows. Otherwise the reader reads for itself.
        reason: PassReason => 3,
    }
}

body! {
    /// How the shim must behave.
    Settings {
        /// The mode.
        mode: Mode,
        /// The ring through which to report reads; 0: none. A changed number means another ring, which
        /// `RingAsk` requests.
        ring: u8 => 2,
        /// Validity in milliseconds.
        settings_ttl_ms: u32,
        /// Enlarged length of a read in mode `prefetch`. The highest bit is [`Settings::shim_reads`].
        prefetch_bytes: u64,
    }
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

body! {
    /// "I do not understand"; the range in the header says which versions would be understood.
    Refuse {
        /// What was wrong.
        reason: RefuseReason => 3,
        /// The refused kind, 0 if unknown.
        kind: u16 => 2,
    }
}

body! {
    /// A piece of the status text. Pieces come in order, `index` from 0; the joined text is UTF-8.
    StatusPart <'a> {
        /// Whether this is the last piece.
        last: bool => 3,
        /// Number of the piece.
        index: u32,
        /// The piece, at most [`STATUS_PART_BYTES_MAX`](crate::STATUS_PART_BYTES_MAX).
        text: &'a [u8],
    }
}

/// A flag in a process id: those are below 2^22.
const PID_FLAG: u32 = 1 << 31;
/// A flag in a length: no file is that long.
const READS_FLAG: u64 = 1 << 63;

/// Asks for the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The asking process.
    pub pid: u32,
    /// Whether the ring may come with the settings. An older daemon ignores it.
    pub ring: bool,
}

impl Field<'_> for Hello {
    const BYTES: usize = u32::BYTES;

    fn write(self, w: &mut Writer<'_>) {
        (self.pid & !PID_FLAG | if self.ring { PID_FLAG } else { 0 }).write(w);
    }

    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Hello, DecodeError> {
        let word = u32::read(r, name)?;
        Ok(Hello { pid: word & !PID_FLAG, ring: word & PID_FLAG != 0 })
    }
}

frames! {
    /// Shim to daemon: asks for the settings. Answered by `Settings`.
    1 Hello(hello: Hello);
    /// Shim to daemon, with a descriptor.
    2 Need(need: Need);
    /// Shim to daemon, unanswered.
    3 Tracked(tracked: Tracked);
    /// Shim to daemon: asks for the ring.
    4 RingAsk;
    /// Program to daemon: asks for a file set for this connection, with a window of this size. Answered by
    /// `FileSet`.
    5 FileSetAsk {
        /// Maximum of bytes that the program wants in memory and not taken.
        window_bytes: u64,
    };
    /// Program to daemon, with a descriptor. Answered by `FileSetReady`, in disk order.
    6 FileSetAdd(add: FileSetAdd);
    /// Program to daemon, unanswered: a range was read, or never will be.
    7 FileSetTook {
        /// Which range.
        range: u32,
        /// Whether it was read.
        read: bool => 3,
    };
    /// Daemon to shim: still in progress.
    16 Working;
    /// Daemon to shim: done.
    17 Answer(answer: Answer);
    /// Daemon to shim.
    18 Settings(settings: Settings);
    /// Either way.
    19 Refuse(refuse: Refuse);
    /// Daemon to shim, with the descriptor of the ring that reads are reported through.
    20 Ring;
    /// Daemon to program.
    21 FileSet(set: FileSet);
    /// Daemon to program.
    22 FileSetReady(ready: FileSetReady);
    /// Any tool to daemon: asks for the status. Answered by `StatusPart`s.
    32 StatusAsk;
    /// Daemon to tool.
    33 StatusPart(part: StatusPart<'a>);
    /// Tool to daemon: pass every call for this long; and the daemon's echo. Only for root and the daemon's
    /// own user.
    34 PassAll {
        /// Milliseconds; 0: serve again; [`PASS_ALL_UNTIL_TOLD`].
        lease_ms: u32,
    };
    /// Tool to daemon: release every file of this file system; and the daemon's echo, once none is open any
    /// more. Only for root and the daemon's own user.
    36 Release {
        /// `st_dev` of its files.
        device: u64,
    };
    /// Shim to daemon, only at the abstract twin of the socket: prove that you know the key beside the
    /// socket. Any process may take an abstract name.
    37 Challenge {
        /// A new number each time.
        nonce: u64,
    };
    /// The daemon's answer.
    38 Proof {
        /// The first bytes of SHA-256 of the key followed by the nonce in little-endian order.
        digest: [u8; 16],
    };
    /// Between a daemon and its successor, both of the same user ([`TakeOverStep`]).
    35 TakeOver {
        /// The step.
        step: TakeOverStep,
        /// With [`TakeOverStep::Offered`]: the last number given to a ring, from which the new daemon counts
        /// on. Otherwise 0.
        ring: u8 => 2,
    };
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
        self.write_body(&mut w);
        if w.overflow {
            return None;
        }
        let length = HEADER_BYTES + w.at;
        let header = Header { version, senders: Versions::OURS, kind: self.kind(), length: length as u32 };
        let mut w = Writer { buf: out, at: 0, overflow: false };
        header.write(&mut w);
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

    /// Decodes one packet. Never panics, whatever the bytes.
    pub fn decode(packet: &'a [u8]) -> Result<Frame<'a>, DecodeError> {
        Frame::decode_with_versions(packet).map(|(frame, _)| frame)
    }

    /// Decodes one packet, and the range of versions that its sender speaks.
    pub fn decode_with_versions(packet: &'a [u8]) -> Result<(Frame<'a>, Versions), DecodeError> {
        let mut r =
            Reader { rest: packet, short: DecodeError::Truncated { have: packet.len(), want: HEADER_BYTES } };
        let header = Header::read(&mut r)?;
        let want = HEADER_BYTES + Frame::body_bytes(header.kind).unwrap_or(0);
        r.short = DecodeError::Truncated { have: packet.len(), want };
        let frame = Frame::read_body(header.kind, &mut r)?;
        if let Frame::Need(Need { offset, length, .. })
        | Frame::FileSetAdd(FileSetAdd { offset, length, .. }) = frame
        {
            check_range(offset, length)?;
        }
        let left = r.rest.len();
        if left != 0 {
            return Err(DecodeError::Oversize { have: packet.len(), max: packet.len().saturating_sub(left) });
        }
        Ok((frame, header.senders))
    }
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
