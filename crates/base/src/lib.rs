//! What everything speaks in: newtypes for time, bytes, disk addresses and files, and the exit statuses that
//! every command shares. Beside them, which bytes a call wants ([`wants`]) and parts of files ([`parts`]).
//!
//! A number without its unit is how milliseconds get added to sectors. Every crate speaks in these types;
//! arithmetic that would mix them does not compile, and arithmetic that would overflow saturates, because a
//! policy that meets an absurd size must stay bounded, not panic.
//!
//! Must not know: anything. No I/O, no clock, no allocation beyond error text.
#![no_std]
extern crate alloc;

mod bytes;
mod escape;
mod exit;
mod name;
mod name_text;
mod nanos;
mod network;
pub mod parts;
mod rate;
mod sector;
mod share;
pub mod wants;

pub use self::bytes::{Bytes, PAGE_BYTES, ParseBytesError};
pub use escape::{escaped, is_unsafe_to_print, lines_escaped};
pub use exit::{Exit, Fault};
pub use name::{FileId, UnknownName};
pub use name_text::{name_from_text, name_to_text};
pub use nanos::{Nanos, ParseNanosError};
pub use network::network;
pub use rate::{BITRATES_BYTES_MAX, BITRATES_MAX, ParseRateError, Rate};
pub use sector::{Lba, SECTOR_BYTES, part_of};
pub use share::share;
