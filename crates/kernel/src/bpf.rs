//! Small programs that the kernel runs at a tracepoint or a function of its own, and the ring into which they
//! write records.
//!
//! A program is assembled here, instruction by instruction ([`Assembler`]): it has a few dozen of them, so no
//! compiler is needed where it is built or run. The kernel proves that it ends and touches only permitted
//! memory, and refuses it otherwise. There is one ring for all processors, with records in the order in which
//! they were made. A program that finds the ring full counts that and goes on, so the code at the tracepoint
//! never waits. Everything ends with its last descriptor, however the process ends.
//!
//! Names and numbers are those of `linux/bpf.h`.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::ProtFlags;

use crate::mapping::Mapping;
use crate::residency::page_bytes;
use crate::syscall::{done, owned};
use crate::tracepoint::Field;

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const MAP_ARRAY: u32 = 2;
const MAP_RINGBUF: u32 = 27;
const MAP_MMAPABLE: u32 = 1 << 10;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const PROG_PROBE: u32 = 2;
const PROG_TRACEPOINT: u32 = 5;
const PROG_TRACING: u32 = 26;
const ATTACH_ENTRY: u32 = 24;

/// The kernel's name for a licence that permits all that its own does, as that of these programs (MIT). It
/// lets no other program follow pointers in its structures.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// `_IOW('$', 8, __u32)`.
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// The length field of a record's header, and two flag bits in it.
const RECORD_BUSY: u32 = 1 << 31;
const RECORD_DISCARDED: u32 = 1 << 30;
const RECORD_HEADER: u64 = 8;

/// A register of the kernel's virtual machine. R0 is the result of a call, R1 to R5 are its arguments and are
/// lost in it, R6 to R9 are preserved; R10 is the end of the program's own 512 bytes. A program begins with
/// R1 at the tracepoint's record, or at the arguments of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    R10,
}

/// Functions of the kernel that a program may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Process id in the upper half, thread id in the lower, as in the first process namespace.
    PidTgid = 14,
    /// Copies R2 bytes from the address R3 in the kernel to R1; puts zeros there if nothing can be read.
    ReadKernel = 113,
    /// Writes the same as eight bytes to R3 (R4 is 8), as in the process namespace with device R1 and inode
    /// R2; zeros if the thread is in another, also in one below it.
    IdsInNamespace = 120,
    /// Writes a record of R3 bytes from R2 into the ring R1; R4 says whether to wake the ring's reader.
    /// Returns 0, or an error if the ring is full.
    Output = 130,
    /// With R2 0: number of unread bytes in the ring R1.
    Query = 134,
}

impl Call {
    /// Flag for [`Call::Output`].
    pub const WAKE_NOBODY: i32 = 1;
    /// Flag for [`Call::Output`].
    pub const WAKE: i32 = 2;
}

/// Where a program may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a tracepoint; it begins with R1 at the tracepoint's record.
    Tracepoint,
    /// At the entry of the function with this id in the kernel's BTF, by a call that the kernel puts there
    /// (fentry). It begins with R1 at the arguments, eight bytes each, and may follow pointers in structures.
    Entry(u32),
    /// At any instruction, by a probe (kprobe). It begins with R1 at the registers, and reads memory with
    /// [`Call::ReadKernel`].
    Probe,
}

/// Target of a jump. Jumps go only forward, so every program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// One instruction in the kernel's layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// Assembles a program.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<Option<usize>>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, value: i32) {
        let (low, high) = if cfg!(target_endian = "little") { (to as u8, from) } else { (from, to as u8) };
        self.code.push(Instruction { code, registers: low | high << 4, offset, value });
    }

    /// A new jump target, to be [placed](Assembler::place).
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label here.
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

    /// `to += value`.
    pub fn add(&mut self, to: Register, value: i32) {
        self.push(0x07, to, 0, 0, value);
    }

    /// `to += from`.
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from as u8, 0, 0);
    }

    /// `to >>= bits`, unsigned.
    pub fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(0x77, to, 0, 0, bits);
    }

    /// `to -= value`.
    pub fn subtract(&mut self, to: Register, value: i32) {
        self.push(0x17, to, 0, 0, value);
    }

    /// `to` = the field (of 1, 2, 4 or 8 bytes) of the record at `from`.
    pub fn load(&mut self, to: Register, from: Register, field: Field) {
        self.load_at(to, from, field.offset as i16, field.size);
    }

    /// `to` = the `size` bytes (1, 2, 4 or 8) at `from + offset`.
    pub fn load_at(&mut self, to: Register, from: Register, offset: i16, size: usize) {
        let code = match size {
            1 => 0x71,
            2 => 0x69,
            4 => 0x61,
            _ => 0x79,
        };
        self.push(code, to, from as u8, offset, 0);
    }

    /// The eight bytes at `to + offset` = `from`.
    pub fn store(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0x7b, to, from as u8, offset, 0);
    }

    /// The eight bytes at `to + offset` = `value`.
    pub fn store_value(&mut self, to: Register, offset: i16, value: i32) {
        self.push(0x7a, to, 0, offset, value);
    }

    /// Adds `from` to the eight bytes at `to`, atomically.
    pub fn add_together(&mut self, to: Register, from: Register) {
        self.push(0xdb, to, from as u8, 0, 0);
    }

    /// `to` = a ring, as an argument of a call.
    pub fn ring(&mut self, to: Register, ring: &Ring) {
        self.wide(to, 1, ring.fd.as_raw_fd());
    }

    /// `to` = the address of a counter.
    pub fn counter(&mut self, to: Register, counter: &Counter) {
        self.wide(to, 2, counter.fd.as_raw_fd());
    }

    /// `to = value`, for any value.
    pub fn set_wide(&mut self, to: Register, value: u64) {
        self.push(0x18, to, 0, 0, value as i32);
        self.code.push(Instruction { value: (value >> 32) as i32, ..Instruction::default() });
    }

    fn wide(&mut self, to: Register, kind: u8, value: i32) {
        self.push(0x18, to, kind, 0, value);
        self.code.push(Instruction::default());
    }

    /// Calls.
    pub fn call(&mut self, call: Call) {
        self.push(0x85, Register::R0, 0, 0, call as i32);
    }

    /// Jumps to the label.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(0x05, Register::R0, 0, 0, 0);
    }

    /// Jumps if all of `register` is 0.
    pub fn jump_if_zero(&mut self, register: Register, label: Label) {
        self.jump_if(0x15, register, 0, label);
    }

    /// Jumps if `register` is not 0.
    pub fn jump_if_not_zero(&mut self, register: Register, label: Label) {
        self.jump_if(0x55, register, 0, label);
    }

    /// Jumps if the lower half of `register` is `value`.
    pub fn jump_if_half_is(&mut self, register: Register, value: u32, label: Label) {
        self.jump_if(0x16, register, value as i32, label);
    }

    /// Jumps if `register` is at least `value`, both unsigned.
    pub fn jump_if_at_least(&mut self, register: Register, value: i32, label: Label) {
        self.jump_if(0x35, register, value, label);
    }

    fn jump_if(&mut self, code: u8, register: Register, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(code, register, 0, 0, value);
    }

    /// Ends the program with R0 as its result. At a tracepoint or probe a result of 0 would suppress the
    /// event for its other users; at an entry it must be 0.
    pub fn exit(&mut self) {
        self.push(0x95, Register::R0, 0, 0, 0);
    }

    /// Loads the program into the kernel, as one for this place.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON` or under lockdown, `ENOSYS` if the kernel has no such
    /// programs, `ENOTSUPP` (524) if it cannot run one there, `EINVAL` or `EACCES` if it refuses this one.
    pub fn finish(mut self, place: Place) -> io::Result<OwnedFd> {
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            kind: u32,
            instructions: u32,
            code: u64,
            license: u64,
            _log: [u32; 4],
            _version: u32,
            _flags: u32,
            _name: [u8; 16],
            _device: u32,
            attach: u32,
            _lines: [u32; 9],
            function: u32,
        }
        for (at, label) in self.jumps {
            let place = self.labels[label.0].ok_or(io::ErrorKind::InvalidInput)?;
            let distance = place.checked_sub(at + 1).ok_or(io::ErrorKind::InvalidInput)?;
            self.code[at].offset = i16::try_from(distance).map_err(|_| io::ErrorKind::InvalidInput)?;
        }
        let (kind, attach, function) = match place {
            Place::Tracepoint => (PROG_TRACEPOINT, 0, 0),
            Place::Entry(function) => (PROG_TRACING, ATTACH_ENTRY, function),
            Place::Probe => (PROG_PROBE, 0, 0),
        };
        let attributes = Attributes {
            kind,
            instructions: self.code.len() as u32,
            code: self.code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            attach,
            function,
            ..Attributes::default()
        };
        // SAFETY: the structure has the kernel's layout; what it points to lives across the call and is only
        // read.
        unsafe { bpf(PROG_LOAD, &attributes) }
    }
}

/// # Safety
/// `attributes` must have the layout of the kernel's `union bpf_attr` for this command, and what it points to
/// must be readable.
unsafe fn bpf<A>(command: libc::c_long, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the given number of bytes; the caller guarantees their content. These commands
    // return a new descriptor.
    unsafe {
        owned(libc::syscall(
            libc::SYS_bpf,
            command,
            ptr::from_ref(attributes),
            size_of::<A>() as libc::c_long,
        ))
    }
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

/// Runs the program wherever this tracepoint is hit, on every processor, until the returned descriptor is
/// closed.
///
/// # Errors
/// `EPERM` or `EACCES` without `CAP_PERFMON` or under lockdown, `ENOENT` if there is no such tracepoint,
/// `E2BIG` if it has too many programs.
pub fn attach(program: BorrowedFd<'_>, tracepoint: u64) -> io::Result<OwnedFd> {
    attach_to(program, crate::perf::silent(tracepoint)?)
}

/// Runs the program ([`Place::Probe`]) wherever this function of the kernel is called, until the returned
/// descriptor is closed.
///
/// # Errors
/// As [`attach`]; `ENOENT` if the kernel has no such function, or no probes.
pub fn attach_probe(program: BorrowedFd<'_>, function: &CStr) -> io::Result<OwnedFd> {
    attach_to(program, crate::perf::silent_probe(function)?)
}

fn attach_to(program: BorrowedFd<'_>, event: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes a descriptor by value.
    done(unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_BPF as _, program.as_raw_fd()) }).map(|_| event)
}

/// Runs the program ([`Place::Entry`]) wherever its function is called, until the returned descriptor is
/// closed.
///
/// # Errors
/// `EPERM` without the capabilities of [`Assembler::finish`], `EBUSY` or `ENOTSUPP` (524) if the kernel
/// cannot put a call there.
pub fn attach_entry(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        name: u64,
        program: u32,
        _rest: u32,
    }
    // SAFETY: the kernel's layout, and no pointers.
    unsafe {
        bpf(RAW_TRACEPOINT_OPEN, &Attributes { name: 0, program: program.as_raw_fd() as u32, _rest: 0 })
    }
}

/// A number that programs add to.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
    map: Mapping,
}

impl Counter {
    /// A counter at 0.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOSYS` if the kernel has no such programs, `ENOMEM`.
    pub fn new() -> io::Result<Counter> {
        let fd = create_map(MAP_ARRAY, 4, 8, 1, MAP_MMAPABLE)?;
        let map = Mapping::of(&fd, ProtFlags::READ, 0, page_bytes() as usize)?;
        Ok(Counter { fd, map })
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        // SAFETY: the map has one aligned value of eight bytes at its start, mapped as long as `self`
        // lives, and both sides use it atomically.
        unsafe { &*self.map.at().cast::<AtomicU64>() }.load(Ordering::Relaxed)
    }
}

/// A ring into which programs write records, for this process to read.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    /// The read position: one page.
    taken: Mapping,
    /// The write position: one page, followed by the data, mapped twice so that no record wraps around the
    /// end.
    made: Mapping,
    bytes: u64,
}

impl Ring {
    /// An empty ring of at least this many bytes (a power of two of pages).
    ///
    /// # Errors
    /// As [`Counter::new`].
    pub fn new(bytes: usize) -> io::Result<Ring> {
        let page = page_bytes();
        let bytes = (bytes as u64).max(page).next_power_of_two();
        let fd = create_map(MAP_RINGBUF, 0, 0, bytes as u32, 0)?;
        let taken = Mapping::of(&fd, ProtFlags::READ | ProtFlags::WRITE, 0, page as usize)?;
        let made = Mapping::of(&fd, ProtFlags::READ, page, (page + 2 * bytes) as usize)?;
        Ok(Ring { fd, taken, made, bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Passes every record in the ring to `take`, oldest first.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        // SAFETY: each of the two mappings begins with an aligned position of eight bytes, is mapped as
        // long as `self` lives, and both sides use it atomically.
        let (taken, made) =
            unsafe { (&*self.taken.at().cast::<AtomicU64>(), &*self.made.at().cast::<AtomicU64>()) };
        let (mut at, end) = (taken.load(Ordering::Relaxed), made.load(Ordering::Acquire));
        while at < end {
            let inside = page_bytes() + at % self.bytes;
            // SAFETY: `inside` is within the first copy of the ring, a multiple of eight like every record.
            let header = unsafe { &*self.made.at().byte_add(inside as usize).cast::<AtomicU32>() };
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
                // SAFETY: a whole record lies between the two positions, and so within the two copies of the
                // ring; the kernel overwrites it only after `taken` has passed it.
                take(unsafe {
                    let record = self.made.at().byte_add((inside + RECORD_HEADER) as usize).cast::<u8>();
                    std::slice::from_raw_parts(record, length as usize)
                });
            }
            at = next;
            // After the record was used, because from here on the kernel may overwrite it.
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
        // The kernel would refuse a program without a proper end.
        match program.finish(Place::Tracepoint) {
            Ok(_) => {}
            Err(e) => println!("skipped: {e}"),
        }
    }

    #[test]
    fn a_jump_to_nowhere_and_a_jump_back_are_refused() {
        let mut nowhere = Assembler::new();
        let label = nowhere.label();
        nowhere.jump(label);
        assert_eq!(nowhere.finish(Place::Tracepoint).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut back = Assembler::new();
        let label = back.label();
        back.place(label);
        back.jump(label);
        assert_eq!(back.finish(Place::Tracepoint).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_tracepoint_that_is_not_there_is_refused() {
        let mut program = Assembler::new();
        program.set(Register::R0, 1);
        program.exit();
        match program.finish(Place::Tracepoint) {
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
