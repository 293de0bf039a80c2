#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| seekless_fuzz::block_map::run(data));
