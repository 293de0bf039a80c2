//! What shim and daemon say to each other: versioned frames, pure bytes.
//! Must not know: sockets.
