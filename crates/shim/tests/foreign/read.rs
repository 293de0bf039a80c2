//! A program for another architecture, started by its C library's loader: reads the file named by its first
//! argument and prints a checksum. It needs no start files of that C library, which only a cross compiler's
//! packages have.
#![no_std]
#![no_main]

use core::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(fd: c_int, into: *mut c_void, bytes: usize) -> isize;
    fn printf(format: *const c_char, ...) -> c_int;
    fn exit(status: c_int) -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

core::arch::global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp", "bl begin");

/// `stack`: the number of arguments, and where each is.
#[unsafe(no_mangle)]
unsafe extern "C" fn begin(stack: *const *const c_char) -> ! {
    let mut bytes = [0u8; 1 << 16];
    let (mut sum, mut total) = (1469598103934665603u64, 0usize);
    unsafe {
        let file = open(*stack.add(2), 0);
        loop {
            let got = read(file, bytes.as_mut_ptr().cast(), bytes.len());
            let Some(part) = usize::try_from(got).ok().and_then(|got| bytes.get(..got)) else { exit(1) };
            if part.is_empty() {
                printf(c"%zu bytes, sum %lx\n".as_ptr(), total, sum);
                exit(0)
            }
            total += part.len();
            sum = part.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(1099511628211));
        }
    }
}
