//! Who asks for what, when. Pure and seeded; readers of files take bytes.
//! Must not know: sockets, files, clocks.

pub mod content;
