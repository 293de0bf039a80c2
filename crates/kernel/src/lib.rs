//! Everything that touches Linux.
#![allow(unsafe_code)]

pub mod fdpass;
pub mod residency;
