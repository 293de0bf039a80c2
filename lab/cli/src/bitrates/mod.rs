//! `seekless-lab bitrates`: writes the table that `--bitrates` reads, from the headers of media files.
//!
//! ```text
//!   the command            walks a folder, opens files, writes the table; reads no header
//!      |  ^                (walk, table)
//!      v  |  a descriptor; a few lines of JSON
//!   one process a file     parses, without rights, with little memory and time (look, confine, header)
//! ```
//!
//! Headers come from the authors of the files, and their parsers are the largest part of Seekless that reads
//! untrusted data. So no process that serves other programs, or that runs as root, contains them. Each file
//! is parsed by a process of its own, which has given up its rights. At worst it returns wrong values for its
//! file, or ends; either is one line.
//!
//! Must not know: the other applications; what the bitrates are for.

pub(crate) mod cli;

mod confine;
mod header;
mod look;
mod manifest;
mod mkv;
mod mp4;
mod table;
mod walk;

#[cfg(test)]
mod tests;
