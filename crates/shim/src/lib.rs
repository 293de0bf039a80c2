//! libseekless.so, the preload shim.
//! Must not know: policy, configuration files, std::fs, an async runtime.
#![allow(unsafe_code)]
