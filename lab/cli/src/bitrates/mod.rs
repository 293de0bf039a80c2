//! `seekless-lab bitrates`: the table that `--bitrates` reads, from what media files say of themselves.
//!
//! ```text
//!   the command            walks a folder, opens files, writes the table; reads no header
//!      |  ^                (walk, table)
//!      v  |  a descriptor; a few lines of JSON
//!   one process a file     parses, without rights, with little memory and time (look, confine, header)
//! ```
//!
//! Headers are written by whoever wrote the files, and their parsers are the largest part of Seekless that
//! reads what others have written. So no process that serves anybody, or that root runs, has them in use.
//! Each file is parsed by a process of its own, which has given up its rights. It can do no more than to say
//! something wrong of its file, or to end, and either is one line.
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
