//! With a program at each tracepoint, which checks the device and writes the requested events into one ring.
//! A read of cached pages pays a third of the cost of a sample (`examples/cache-events-cost.rs`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{ADDED_MASK, CacheEvent, Drained, Layout, RING_PAGES, Taken};
use crate::bpf::{self, Assembler, Call, Counter, Register, Ring};
use crate::residency::page_bytes;

/// A record: tracepoint, device, inode, first and last page, process and thread, eight bytes each.
const RECORD: i32 = 6 * 8;

/// Bytes of a record in the ring.
const RECORD_IN_RING: i32 = RECORD + 8;

/// Maximum size of the ring, in rings of one processor.
const PROCESSORS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Programs {
    ring: Ring,
    full: Counter,
    /// The part of `full` that was reported.
    told: u64,
    taken: Vec<Taken>,
    own: u32,
    _attached: Vec<OwnedFd>,
}

impl Programs {
    /// # Errors
    /// No such programs, no permission, or another process namespace than the first.
    pub(super) fn open(layouts: &[Layout], devices: &[(u32, u32)]) -> io::Result<Programs> {
        // Process ids in a program are always those of the first.
        if !crate::container::sees_all_processes() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "in a process namespace of its own"));
        }
        let processors = crate::perf::processors()?.len().clamp(1, PROCESSORS_MAX);
        let ring = Ring::new(processors * RING_PAGES[0] * page_bytes() as usize)?;
        let full = Counter::new()?;
        let mut attached = Vec::new();
        for (kind, layout) in layouts.iter().enumerate() {
            let program = program(kind, layout, devices, &ring, &full).finish()?;
            attached.push(bpf::attach(program.as_fd(), layout.number)?);
        }
        let taken = layouts.iter().map(|l| l.taken).collect();
        Ok(Programs { ring, full, told: 0, taken, own: std::process::id(), _attached: attached })
    }

    pub(super) fn drain(&mut self, into: &mut Vec<CacheEvent>) -> Drained {
        let full = self.full.get();
        let mut drained = Drained { own: 0, lost: full - self.told };
        self.told = full;
        self.ring.drain(|record| {
            let Some(event) = event(&self.taken, record) else { return };
            if event.pid == self.own { drained.own += 1 } else { into.push(event) }
        });
        drained
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

fn event(taken: &[Taken], record: &[u8]) -> Option<CacheEvent> {
    let mut numbers =
        record.chunks_exact(8).filter_map(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
    let mut number = || numbers.next();
    let (kind, dev, ino, first, last, who) =
        (number()?, number()?, number()?, number()?, number()?, number()?);
    Some(CacheEvent {
        taken: *taken.get(kind as usize)?,
        dev: super::device(dev as u32),
        ino,
        first,
        last: last.max(first),
        pid: (who >> 32) as u32,
        tid: who as u32,
    })
}

/// Wakes the reader with the record that fills a quarter of the ring; before that the reader polls by itself.
fn program(kind: usize, layout: &Layout, devices: &[(u32, u32)], ring: &Ring, full: &Counter) -> Assembler {
    use Register::{R0, R1, R2, R3, R6, R7, R8, R9};
    let mut p = Assembler::new();
    let (asked_for, is_full, quietly, hand_over, end) =
        (p.label(), p.label(), p.label(), p.label(), p.label());

    p.copy(R6, R1);
    p.load(R7, R6, layout.dev);
    for device in devices {
        p.jump_if_half_is(R7, super::number_of(*device), asked_for);
    }
    p.jump(end);
    p.place(asked_for);
    p.load(R8, R6, layout.first);
    if layout.taken == Taken::Added {
        p.copy(R1, R8);
        p.and(R1, ADDED_MASK as i32);
        p.jump_if_not_zero(R1, end);
    }

    p.ring(R1, ring);
    p.set(R2, RECORD);
    p.set(R3, 0);
    p.call(Call::Reserve);
    p.jump_if_zero(R0, is_full);
    p.copy(R9, R0);
    p.store_value(R9, 0, kind as i32);
    p.store(R9, 8, R7);
    p.load(R1, R6, layout.ino);
    p.store(R9, 16, R1);
    p.store(R9, 24, R8);
    p.load(R1, R6, layout.last);
    p.store(R9, 32, R1);
    p.call(Call::PidTgid);
    p.store(R9, 40, R0);

    p.ring(R1, ring);
    p.set(R2, 0);
    p.call(Call::Query);
    p.subtract(R0, (ring.bytes() / 4) as i32);
    // Below a quarter the difference wraps to a huge unsigned number.
    p.jump_if_at_least(R0, RECORD_IN_RING, quietly);
    p.set(R2, Call::WAKE);
    p.jump(hand_over);
    p.place(quietly);
    p.set(R2, Call::WAKE_NOBODY);
    p.place(hand_over);
    p.copy(R1, R9);
    p.call(Call::Submit);
    p.jump(end);

    p.place(is_full);
    p.counter(R1, full);
    p.set(R2, 1);
    p.add_together(R1, R2);
    p.place(end);
    p.set(R0, 1);
    p.exit();
    p
}
