//! The enumerations of the frames. Their numbers are part of the protocol: never reuse one.

use core::fmt;
use core::str::FromStr;

use seekless_base::wants::CallKind;

macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)+ }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The value with this number, if there is one.
            pub const fn from_number(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)+ _ => None }
            }

            /// The number of this value in a frame.
            pub const fn number(self) -> u8 { self as u8 }

            /// The name of this value, as users write it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl crate::bytes::Field<'_> for $name {
            const BYTES: usize = 1;

            fn write(self, w: &mut crate::bytes::Writer<'_>) { self.number().write(w) }

            fn read(r: &mut crate::bytes::Reader<'_>, name: &'static str) -> Result<$name, crate::DecodeError> {
                let number = u8::read(r, name)?;
                $name::from_number(number).ok_or(crate::DecodeError::Field { name, value: number.into() })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

vocabulary! {
    /// The intercepted call that a frame is about.
    Call {
        /// `read`, `__read_chk`.
        Read = 1, "read";
        /// `pread`, `pread64`, `__pread_chk`, `__pread64_chk`.
        Pread = 2, "pread";
        /// `readv`.
        Readv = 3, "readv";
        /// `preadv`, `preadv64`.
        Preadv = 4, "preadv";
        /// `preadv2`, `preadv64v2`.
        Preadv2 = 5, "preadv2";
        /// `sendfile`, `sendfile64`.
        Sendfile = 6, "sendfile";
        /// `splice` from a file.
        Splice = 7, "splice";
        /// `copy_file_range`.
        CopyFileRange = 8, "copy_file_range";
        /// `mmap`, `mmap64` with `MAP_POPULATE`; `madvise` with `MADV_POPULATE_READ`. The caller waits.
        Mmap = 9, "mmap";
        /// `madvise`, `posix_madvise` with `WILLNEED`: an advice, its caller does not wait.
        Madvise = 10, "madvise";
        /// `posix_fadvise`, `posix_fadvise64` with `WILLNEED`: an advice.
        Fadvise = 11, "posix_fadvise";
        /// `readahead`: an advice.
        Readahead = 12, "readahead";
        /// No intercepted call: a test, a tool or another door.
        Other = 255, "other";
    }
}

vocabulary! {
    /// What Seekless does with a miss: the modes of the Libception paper (section 3.2.2).
    Mode {
        /// Nothing: every call passes.
        Off = 0, "off";
        /// Time each call and report it; change nothing.
        Track = 1, "track";
        /// One read at a time per disk, as long as the application requested.
        Serialise = 2, "serialise";
        /// Enlarge each read, in the application's own thread, with no order among them.
        Prefetch = 3, "prefetch";
        /// Both: one enlarged read at a time per disk.
        Both = 4, "both";
    }
}

impl Call {
    /// Whether the caller only announces what it will read and goes on. Its need is sent and the connection
    /// closed at once, so an end of file after the frame does not mean that the bytes are no longer wanted.
    pub const fn is_advice(self) -> bool {
        matches!(self, Call::Fadvise | Call::Readahead | Call::Madvise)
    }

    /// How the call takes its bytes.
    pub const fn kind(self) -> CallKind {
        match self {
            Call::Read | Call::Pread | Call::Readv | Call::Preadv | Call::Preadv2 => CallKind::Read,
            Call::Sendfile | Call::Splice => CallKind::Send,
            Call::CopyFileRange | Call::Mmap | Call::Madvise => CallKind::Part,
            Call::Fadvise | Call::Readahead | Call::Other => CallKind::Part,
        }
    }
}

/// Parses the name of a mode; also accepts `serialize` for `serialise`.
impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Mode, Self::Err> {
        let s = if s == "serialize" { "serialise" } else { s };
        Mode::ALL
            .iter()
            .copied()
            .find(|m| m.name() == s)
            .ok_or("not a mode; write off, track, serialise, prefetch or both")
    }
}

vocabulary! {
    /// The daemon's answer to a need.
    Verdict {
        /// The bytes were in the page cache when this was sent.
        Resident = 1, "resident";
        /// Go on without us, for the reason given.
        Pass = 2, "pass";
    }
}

vocabulary! {
    /// Why a need passed.
    PassReason {
        /// It did not pass.
        None = 0, "none";
        /// The mode does not serialise (off, track or prefetch).
        Mode = 1, "mode";
        /// The file is not on a disk that seeks (solid-state, memory, network), or its disk must be left
        /// alone.
        NotADisk = 2, "not a disk";
        /// A bound was reached: queue, memory or descriptors.
        Full = 3, "full";
        /// The disk returned an error or did not answer in time: the application must get the error itself.
        DiskError = 4, "disk error";
        /// The daemon is closing.
        Closing = 5, "closing";
        /// The descriptor is not a regular file, cannot be read, or the range lies outside it.
        BadRequest = 6, "bad request";
        /// The reader is not known to be sequential, and the sizing algorithm leaves such readers alone.
        Random = 7, "random";
    }
}

vocabulary! {
    /// Why a frame was not understood.
    RefuseReason {
        /// Its version; the header of the refusal says which would be understood.
        Version = 1, "version";
        /// Its kind.
        Kind = 2, "kind";
        /// Its length or a field.
        Malformed = 3, "malformed";
        /// It came without its descriptor, or with one that it must not have.
        Descriptor = 4, "descriptor";
        /// The sender has no permission for this.
        Permission = 5, "permission";
    }
}

vocabulary! {
    /// The steps when one daemon takes the place of another.
    TakeOverStep {
        /// New to old: asks for the sockets.
        Ask = 0, "ask";
        /// Old to new: the listening socket at the path.
        Socket = 1, "socket";
        /// Old to new: its twin in the abstract namespace.
        Twin = 2, "twin";
        /// Old to new: the listening socket of the metrics address.
        Metrics = 3, "metrics";
        /// Old to new: no more sockets follow.
        Offered = 4, "offered";
        /// New to old: it accepts connections now.
        Serving = 5, "serving";
        /// Old to new: it accepts no more.
        Released = 6, "released";
        /// Old to new, instead of [`TakeOverStep::Socket`]: the listening socket at a path that the service
        /// manager made, and that a daemon must not change or remove.
        ActivatedSocket = 7, "activated-socket";
    }
}

impl TakeOverStep {
    /// Whether a descriptor comes with this step.
    pub const fn carries_descriptor(self) -> bool {
        use TakeOverStep::{ActivatedSocket, Metrics, Socket, Twin};
        matches!(self, Socket | ActivatedSocket | Twin | Metrics)
    }
}
