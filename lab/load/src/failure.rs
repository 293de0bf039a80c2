//! How a request fails, one kind for each thing a person would look into.

use core::fmt;

use seekless_base::Nanos;
use serde::{Deserialize, Serialize};

/// Why one request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Not complete in time, counted from when it was due.
    Timeout,
    /// No connection could be made.
    Connect(String),
    /// The connection broke, or what came was not HTTP.
    Connection(String),
    /// A status that does not answer the request.
    Status(u16),
    /// `Content-Range` or `Content-Length` names other bytes than asked for.
    Range(String),
    /// Fewer bytes than promised.
    Short {
        /// Bytes that came.
        got: u64,
        /// Bytes asked for.
        expected: u64,
    },
    /// A byte that is not the file's.
    WrongByte {
        /// Where in the file.
        offset: u64,
        /// The file's byte.
        expected: u8,
        /// The byte received.
        got: u8,
    },
    /// The load generator had too many clients at once to start this one.
    Overload,
}

/// The kinds by name, in the order of [`Failure::kind`].
pub const KINDS: [&str; 8] =
    ["timeout", "connect", "connection", "status", "range", "short_body", "wrong_byte", "overload"];

impl Failure {
    /// Index of the kind in [`KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Failure::Timeout => 0,
            Failure::Connect(_) => 1,
            Failure::Connection(_) => 2,
            Failure::Status(_) => 3,
            Failure::Range(_) => 4,
            Failure::Short { .. } => 5,
            Failure::WrongByte { .. } => 6,
            Failure::Overload => 7,
        }
    }

    /// Whether the server answered with something that is not the file: never acceptable, whatever the load.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Failure::WrongByte { .. } | Failure::Range(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout => f.write_str("not complete in time"),
            Failure::Connect(why) => write!(f, "no connection: {why}"),
            Failure::Connection(why) => write!(f, "connection broke: {why}"),
            Failure::Status(status) => write!(f, "status {status}"),
            Failure::Range(why) => f.write_str(why),
            Failure::Short { got, expected } => write!(f, "{got} of {expected} bytes"),
            Failure::WrongByte { offset, expected, got } => {
                write!(f, "wrong byte at offset {offset}: expected {expected:#04x}, got {got:#04x}")
            }
            Failure::Overload => f.write_str("more clients at once than --max-clients allows"),
        }
    }
}

/// A failure kept for the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureExample {
    /// Kind, one of [`KINDS`].
    pub kind: String,
    /// When the request was due, seconds from the start.
    pub due_s: f64,
    /// The file.
    pub path: String,
    /// First byte asked for.
    pub offset: u64,
    /// What happened, in words.
    pub detail: String,
}

impl FailureExample {
    /// A failure with its place.
    pub fn new(failure: &Failure, due: Nanos, path: &str, offset: u64) -> FailureExample {
        FailureExample {
            kind: KINDS[failure.kind()].into(),
            due_s: due.as_secs_f64(),
            path: path.into(),
            offset,
            detail: failure.to_string(),
        }
    }
}
