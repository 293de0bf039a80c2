//! Small programs that the kernel runs where a tracepoint is met, and the ring they write records into.
//!
//! A program is put together here, instruction by instruction ([`Assembler`]): it is a few dozen of them,
//! and no compiler is needed where it is built or run. The kernel proves that it ends and touches nothing
//! but what it may, and refuses it otherwise. There is one ring for all processors, and its records are in
//! the order in which they were made. A program that finds the ring full counts that and goes on, so what
//! meets the tracepoint never waits for us. All of it ends with its last descriptor, however the process
//! ends.
//!
//! Names and numbers are those of `linux/bpf.h`.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::residency::page_bytes;
use crate::tracepoint::Field;

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const MAP_ARRAY: u32 = 2;
const MAP_RINGBUF: u32 = 27;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TRACEPOINT: u32 = 5;

/// `_IOW('$', 8, __u32)`.
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// The number of a record's header that says how long it is, and two bits of it.
const RECORD_BUSY: u32 = 1 << 31;
const RECORD_DISCARDED: u32 = 1 << 30;
const RECORD_HEADER: u64 = 8;

/// A register of the kernel's machine: R0 is what a call gives back, R1 to R5 are what it takes and are
/// lost in it, R6 to R9 are kept. A program begins with R1 at the tracepoint's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R6 = 6,
    R7,
    R8,
    R9,
}

/// What a program may ask of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Process above, thread below, as the first process namespace numbers them.
    PidTgid = 14,
    /// Room for a record of R2 bytes in the ring R1 (R3 is 0); 0: it is full.
    Reserve = 131,
    /// Hands over the record R1; R2 says whether the ring's reader is woken.
    Submit = 132,
    /// With R2 0: bytes in the ring R1 that nobody has taken yet.
    Query = 134,
}

impl Call {
    /// For [`Call::Submit`].
    pub const WAKE_NOBODY: i32 = 1;
    /// For [`Call::Submit`].
    pub const WAKE: i32 = 2;
}

/// Where a jump goes. Forward only, so every program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// One instruction, as the kernel lays it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// A program being put together.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<Option<usize>>,
}

impl Assembler {
    /// An empty one.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, value: i32) {
        let (low, high) = if cfg!(target_endian = "little") { (to as u8, from) } else { (from, to as u8) };
        self.code.push(Instruction { code, registers: low | high << 4, offset, value });
    }

    /// A place to jump to, to be [put](Assembler::place) somewhere.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `to = value`.
    pub fn set(&mut self, to: Register, value: i32) {
        self.push(0xb7, to, 0, 0, value);
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from as u8, 0, 0);
    }

    /// `to &= value`.
    pub fn and(&mut self, to: Register, value: i32) {
        self.push(0x57, to, 0, 0, value);
    }

    /// `to -= value`.
    pub fn subtract(&mut self, to: Register, value: i32) {
        self.push(0x17, to, 0, 0, value);
    }

    /// `to` = the field (of 1, 2, 4 or 8 bytes) of the record at `from`.
    pub fn load(&mut self, to: Register, from: Register, field: Field) {
        let code = match field.size {
            1 => 0x71,
            2 => 0x69,
            4 => 0x61,
            _ => 0x79,
        };
        self.push(code, to, from as u8, field.offset as i16, 0);
    }

    /// The eight bytes at `to + offset` = `from`.
    pub fn store(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0x7b, to, from as u8, offset, 0);
    }

    /// The eight bytes at `to + offset` = `value`.
    pub fn store_value(&mut self, to: Register, offset: i16, value: i32) {
        self.push(0x7a, to, 0, offset, value);
    }

    /// Adds `from` to the eight bytes at `to`, in one step for all processors.
    pub fn add_together(&mut self, to: Register, from: Register) {
        self.push(0xdb, to, from as u8, 0, 0);
    }

    /// `to` = a ring, to be given to a call.
    pub fn ring(&mut self, to: Register, ring: &Ring) {
        self.wide(to, 1, ring.fd.as_raw_fd());
    }

    /// `to` = where a counter is.
    pub fn counter(&mut self, to: Register, counter: &Counter) {
        self.wide(to, 2, counter.fd.as_raw_fd());
    }

    fn wide(&mut self, to: Register, kind: u8, value: i32) {
        self.push(0x18, to, kind, 0, value);
        self.code.push(Instruction::default());
    }

    /// Calls.
    pub fn call(&mut self, call: Call) {
        self.push(0x85, Register::R0, 0, 0, call as i32);
    }

    /// Goes on at the label.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(0x05, Register::R0, 0, 0, 0);
    }

    /// The same if all of `register` is 0.
    pub fn jump_if_zero(&mut self, register: Register, label: Label) {
        self.jump_if(0x15, register, 0, label);
    }

    /// The same if it is not.
    pub fn jump_if_not_zero(&mut self, register: Register, label: Label) {
        self.jump_if(0x55, register, 0, label);
    }

    /// The same if the lower half of `register` is `value`.
    pub fn jump_if_half_is(&mut self, register: Register, value: u32, label: Label) {
        self.jump_if(0x16, register, value as i32, label);
    }

    /// The same if `register` is at least `value`, both without sign.
    pub fn jump_if_at_least(&mut self, register: Register, value: i32, label: Label) {
        self.jump_if(0x35, register, value, label);
    }

    fn jump_if(&mut self, code: u8, register: Register, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(code, register, 0, 0, value);
    }

    /// Ends the program. It gives back R0: 0 would keep what others have at this tracepoint from hearing of
    /// it.
    pub fn exit(&mut self) {
        self.push(0x95, Register::R0, 0, 0, 0);
    }

    /// Has the kernel take it, as a program for tracepoints.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON` or under lockdown, `ENOSYS` where the kernel has no such
    /// programs, `EINVAL` or `EACCES` where it refuses this one.
    pub fn finish(mut self) -> io::Result<OwnedFd> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            instructions: u32,
            code: u64,
            license: u64,
        }
        for (at, label) in self.jumps {
            let place = self.labels[label.0].ok_or(io::ErrorKind::InvalidInput)?;
            let distance = place.checked_sub(at + 1).ok_or(io::ErrorKind::InvalidInput)?;
            self.code[at].offset = i16::try_from(distance).map_err(|_| io::ErrorKind::InvalidInput)?;
        }
        let attributes = Attributes {
            kind: PROG_TRACEPOINT,
            instructions: self.code.len() as u32,
            code: self.code.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
        };
        // SAFETY: the structure has the kernel's layout; what it points to lives across the call and is
        // only read.
        unsafe { bpf(PROG_LOAD, &attributes) }
    }
}

/// # Safety
/// `attributes` has the layout of the kernel's `union bpf_attr` for this command, and what it points to is
/// readable.
unsafe fn bpf<A>(command: libc::c_long, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes as it is told; the caller answers for what they say.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), size_of::<A>() as libc::c_long)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands give a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn create_map(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key: u32,
        value: u32,
        entries: u32,
        flags: u32,
    }
    // SAFETY: the kernel's layout, and no pointers.
    unsafe { bpf(MAP_CREATE, &Attributes { kind, key, value, entries, flags }) }
}

/// Runs the program wherever the tracepoint of this number is met, on every processor, until the descriptor
/// given back is closed.
///
/// # Errors
/// `EPERM` or `EACCES` without `CAP_PERFMON` or under lockdown, `ENOENT`: no such tracepoint, `E2BIG`: it
/// has too many programs.
pub fn attach(program: BorrowedFd<'_>, tracepoint: u64) -> io::Result<OwnedFd> {
    let event = crate::perf::silent(tracepoint)?;
    // SAFETY: the request takes a descriptor by value.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_BPF as _, program.as_raw_fd()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
}

/// A part of a map's memory, as this process sees it.
#[derive(Debug)]
struct Mapping {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; what is in it is read and written as
// atomics, or by `&mut Ring`.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(map: &OwnedFd, writable: bool, offset: u64, bytes: usize) -> io::Result<Mapping> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses a free address, nothing of ours is replaced.
        let at = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, map, offset)? };
        Ok(Mapping { at, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made at the start; references into it do not outlive its owner.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}

/// A number that programs add to.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
    map: Mapping,
}

impl Counter {
    /// One that stands at 0.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOSYS` where the kernel has no such programs, `ENOMEM`.
    pub fn new() -> io::Result<Counter> {
        let fd = create_map(MAP_ARRAY, 4, 8, 1, MAP_MMAPABLE)?;
        let map = Mapping::of(&fd, false, 0, page_bytes() as usize)?;
        Ok(Counter { fd, map })
    }

    /// What it stands at.
    pub fn get(&self) -> u64 {
        // SAFETY: the map has one aligned value of eight bytes at its start, mapped as long as `self`
        // lives, and both sides use it atomically.
        unsafe { &*self.map.at.cast::<AtomicU64>() }.load(Ordering::Relaxed)
    }
}

/// What programs write records into, for this process to read.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    /// How far it was read: one page.
    taken: Mapping,
    /// How far it is written: one page; behind it the bytes, twice, so that no record goes round the end.
    made: Mapping,
    bytes: u64,
}

impl Ring {
    /// An empty one of at least so many bytes (a power of two of pages).
    ///
    /// # Errors
    /// As [`Counter::new`].
    pub fn new(bytes: usize) -> io::Result<Ring> {
        let page = page_bytes();
        let bytes = (bytes as u64).max(page).next_power_of_two();
        let fd = create_map(MAP_RINGBUF, 0, 0, bytes as u32, 0)?;
        let taken = Mapping::of(&fd, true, 0, page as usize)?;
        let made = Mapping::of(&fd, false, page, (page + 2 * bytes) as usize)?;
        Ok(Ring { fd, taken, made, bytes })
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands over every record that is there, oldest first.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        // SAFETY: each of the two mappings begins with an aligned position of eight bytes, is mapped as
        // long as `self` lives, and both sides use it atomically.
        let (taken, made) =
            unsafe { (&*self.taken.at.cast::<AtomicU64>(), &*self.made.at.cast::<AtomicU64>()) };
        let (mut at, end) = (taken.load(Ordering::Relaxed), made.load(Ordering::Acquire));
        while at < end {
            let inside = page_bytes() + at % self.bytes;
            // SAFETY: `inside` is within the first copy of the ring, a multiple of eight like every record.
            let header = unsafe { &*self.made.at.byte_add(inside as usize).cast::<AtomicU32>() };
            let header = header.load(Ordering::Acquire);
            if header & RECORD_BUSY != 0 {
                break;
            }
            let length = u64::from(header & !RECORD_DISCARDED);
            let next = at + (RECORD_HEADER + length).next_multiple_of(8);
            if next > end {
                break;
            }
            if header & RECORD_DISCARDED == 0 {
                // SAFETY: a whole record lies between the two positions, and so within the two copies of
                // the ring; the kernel writes over it only after `taken` has gone past it.
                take(unsafe {
                    let record = self.made.at.byte_add((inside + RECORD_HEADER) as usize).cast::<u8>();
                    std::slice::from_raw_parts(record, length as usize)
                });
            }
            at = next;
            // After the record was used: from here on the kernel writes over it.
            taken.store(at, Ordering::Release);
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_goes_where_its_label_is() {
        let mut program = Assembler::new();
        let end = program.label();
        program.set(Register::R0, 1);
        program.jump_if_zero(Register::R0, end);
        program.set(Register::R0, 2);
        program.place(end);
        program.exit();
        // The kernel would refuse what does not end well.
        match program.finish() {
            Ok(_) => {}
            Err(e) => println!("skipped: {e}"),
        }
    }

    #[test]
    fn a_jump_to_nowhere_and_a_jump_back_are_refused() {
        let mut nowhere = Assembler::new();
        let label = nowhere.label();
        nowhere.jump(label);
        assert_eq!(nowhere.finish().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut back = Assembler::new();
        let label = back.label();
        back.place(label);
        back.jump(label);
        assert_eq!(back.finish().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_tracepoint_that_is_not_there_is_refused() {
        let mut program = Assembler::new();
        program.set(Register::R0, 1);
        program.exit();
        match program.finish() {
            Ok(program) => {
                attach(program.as_fd(), u64::MAX >> 1).unwrap_err();
            }
            Err(e) => println!("skipped: {e}"),
        }
    }

    #[test]
    fn an_empty_ring_has_no_records_and_a_new_counter_is_zero() {
        match (Ring::new(1), Counter::new()) {
            (Ok(mut ring), Ok(counter)) => {
                ring.drain(|record| panic!("{record:?}"));
                assert_eq!((ring.bytes(), counter.get()), (page_bytes(), 0));
            }
            (Err(e), _) | (_, Err(e)) => println!("skipped: {e}"),
        }
    }
}
