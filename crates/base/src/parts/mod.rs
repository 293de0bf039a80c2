//! Parts of files over HTTP: which bytes were asked for, how several parts travel in one answer, and which
//! have arrived.
//!
//! Pure: bytes in, bytes out. Shared by the server and download client (`http`) and the load (`load`).
//!
//! Must not know: sockets, files, headers other than the three it is about.

pub mod blockmap;
pub mod multipart;
pub mod range;
