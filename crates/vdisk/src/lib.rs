//! A hard disk made of software: drive x FUSE (+ loop).
