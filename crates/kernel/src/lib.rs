//! Everything that touches Linux.
#![allow(unsafe_code)]
