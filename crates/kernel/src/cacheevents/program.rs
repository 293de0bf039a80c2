//! A program at each tracepoint or function, which checks the device and writes the requested events into one
//! ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::functions::{Functions, Site, Span, Value};
use super::{ADDED_MASK, CacheEvent, Drained, Layout, RING_PAGES, Taken};
use crate::bpf::{self, Assembler, Call, Counter, Label, Place, Register, Ring};
use crate::residency::page_bytes;
use crate::tracepoint::Field;

/// A record: place, device, inode, first and last page, process and thread, eight bytes each.
const RECORD: i32 = 6 * 8;

/// Bytes of a record in the ring.
const RECORD_IN_RING: i32 = RECORD + 8;

/// Maximum size of the ring, in rings of one processor.
const PROCESSORS_MAX: usize = 16;

/// A device that no file system has.
const NO_DEVICE: (u32, u32) = (0, 0);

/// Where a program keeps the numbers of its record, from the end of its memory, and one that it follows.
mod kept {
    pub(super) const PLACE: i16 = -48;
    pub(super) const DEVICE: i16 = -40;
    pub(super) const INODE: i16 = -32;
    pub(super) const FIRST: i16 = -24;
    pub(super) const LAST: i16 = -16;
    pub(super) const WHO: i16 = -8;
    pub(super) const FOLLOWED: i16 = -56;
}

/// How programs are run at functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By calls at their entries (fentry).
    Entries,
    /// By probes (kprobes).
    Probes,
}

#[derive(Debug)]
pub(super) struct Programs {
    ring: Ring,
    full: Counter,
    /// The part of `full` that was reported.
    told: u64,
    taken: Vec<Taken>,
    own: u32,
    /// Device and inode of our process namespace; `None`: the first.
    namespace: Option<(u64, u64)>,
    _attached: Vec<OwnedFd>,
}

impl Programs {
    /// Programs at tracepoints.
    ///
    /// # Errors
    /// No such programs, or no permission.
    pub(super) fn open(layouts: &[Layout], devices: &[(u32, u32)]) -> io::Result<Programs> {
        let mut programs = Programs::new()?;
        for layout in layouts {
            programs.attach(layout, devices)?;
        }
        Ok(programs)
    }

    /// Programs at functions, and at the tracepoint that every kernel has.
    ///
    /// # Errors
    /// As [`Programs::open`].
    pub(super) fn open_at(functions: &Functions, by: By, devices: &[(u32, u32)]) -> io::Result<Programs> {
        let mut programs = Programs::new()?;
        for site in &functions.sites {
            let program = programs.at_site(site, by, devices)?;
            programs._attached.push(match by {
                By::Entries => bpf::attach_entry(program.as_fd())?,
                By::Probes => bpf::attach_probe(program.as_fd(), site.name)?,
            });
        }
        programs.attach(&functions.added, devices)?;
        Ok(programs)
    }

    /// Whether the kernel accepts programs at tracepoints; runs none.
    ///
    /// # Errors
    /// Those of [`Programs::open`].
    pub(super) fn probe(layouts: &[Layout]) -> io::Result<()> {
        let mut programs = Programs::new()?;
        layouts.iter().try_for_each(|layout| programs.at_tracepoint(layout, &[NO_DEVICE]).map(drop))
    }

    /// The same for programs at functions.
    ///
    /// # Errors
    /// Those of [`Programs::open_at`].
    pub(super) fn probe_at(functions: &Functions, by: By) -> io::Result<()> {
        let mut programs = Programs::new()?;
        if by == By::Probes {
            crate::perf::probe_kind()?;
        }
        functions.sites.iter().try_for_each(|site| programs.at_site(site, by, &[NO_DEVICE]).map(drop))
    }

    fn new() -> io::Result<Programs> {
        let processors = crate::perf::processors().min(PROCESSORS_MAX);
        let ring = with_locked_memory(|| Ring::new(processors * RING_PAGES * page_bytes() as usize))?;
        let (full, own) = (Counter::new()?, std::process::id());
        let namespace = match crate::container::sees_all_processes() {
            true => None,
            false => Some(std::fs::metadata("/proc/self/ns/pid")?).map(|of| (of.dev(), of.ino())),
        };
        Ok(Programs { ring, full, told: 0, taken: Vec::new(), own, namespace, _attached: Vec::new() })
    }

    fn at_tracepoint(&mut self, layout: &Layout, devices: &[(u32, u32)]) -> io::Result<OwnedFd> {
        self.program(layout.taken, devices, Place::Tracepoint, |writer| writer.layout(layout))
    }

    fn attach(&mut self, layout: &Layout, devices: &[(u32, u32)]) -> io::Result<()> {
        let program = self.at_tracepoint(layout, devices)?;
        self._attached.push(bpf::attach(program.as_fd(), layout.number)?);
        Ok(())
    }

    fn at_site(&mut self, site: &Site, by: By, devices: &[(u32, u32)]) -> io::Result<OwnedFd> {
        let place = match by {
            By::Entries => Place::Entry(site.id),
            By::Probes => Place::Probe,
        };
        let arguments = match by {
            By::Entries => Arguments::InOrder,
            By::Probes => Arguments::Registers(REGISTERS.ok_or(io::ErrorKind::Unsupported)?),
        };
        self.program(site.taken, devices, place, |writer| writer.site(site, arguments))
    }

    /// A program that records what `fill` finds. The reader is woken by the record that fills a quarter of
    /// the ring; before that the reader polls by itself.
    fn program(
        &mut self,
        taken: Taken,
        devices: &[(u32, u32)],
        place: Place,
        fill: impl FnOnce(&mut Writer<'_>) -> io::Result<()>,
    ) -> io::Result<OwnedFd> {
        use Register::{R0, R1, R2, R3, R4, R6, R10};
        let mut p = Assembler::new();
        let (quietly, hand_over, end) = (p.label(), p.label(), p.label());
        p.copy(R6, R1);
        let mut writer = Writer { p, devices, end };
        fill(&mut writer)?;
        let mut p = writer.p;
        p.store_value(R10, kept::PLACE, self.taken.len() as i32);
        match self.namespace {
            None => {
                p.call(Call::PidTgid);
                p.store(R10, kept::WHO, R0);
            }
            Some((device, inode)) => {
                p.set_wide(R1, device);
                p.set_wide(R2, inode);
                p.copy(R3, R10);
                p.add(R3, i32::from(kept::WHO));
                p.set(R4, 8);
                p.call(Call::IdsInNamespace);
            }
        }

        p.ring(R1, &self.ring);
        p.set(R2, 0);
        p.call(Call::Query);
        p.subtract(R0, (self.ring.bytes() / 4) as i32);
        // Below a quarter the difference wraps to a huge unsigned number.
        p.jump_if_at_least(R0, RECORD_IN_RING, quietly);
        p.set(R4, Call::WAKE);
        p.jump(hand_over);
        p.place(quietly);
        p.set(R4, Call::WAKE_NOBODY);
        p.place(hand_over);
        p.ring(R1, &self.ring);
        p.copy(R2, R10);
        p.add(R2, i32::from(kept::PLACE));
        p.set(R3, RECORD);
        p.call(Call::Output);
        p.jump_if_zero(R0, end);

        p.counter(R1, &self.full);
        p.set(R2, 1);
        p.add_together(R1, R2);
        p.place(end);
        p.set(R0, i32::from(!matches!(place, Place::Entry(_))));
        p.exit();
        self.taken.push(taken);
        p.finish(place)
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

/// Before 5.11 the memory of programs counts as locked by their user, whose limit is 64 KiB in many places.
/// The limit is lifted if the first try exceeds it, and put back if it was not the reason.
fn with_locked_memory<T>(make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    make().or_else(|error| {
        let before = getrlimit(Resource::Memlock);
        let none = Rlimit { current: None, maximum: None };
        if error.raw_os_error() != Some(libc::EPERM) || setrlimit(Resource::Memlock, none).is_err() {
            return Err(error);
        }
        make().inspect_err(|_| {
            let _ = setrlimit(Resource::Memlock, before);
        })
    })
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

/// Where a program finds the arguments of its function.
#[derive(Clone, Copy)]
enum Arguments {
    /// Eight bytes each; structures may be followed.
    InOrder,
    /// In these bytes of the registers.
    Registers(&'static [usize]),
}

/// Offsets in the kernel's `struct pt_regs` of the registers with a function's arguments, in order.
#[cfg(target_arch = "x86_64")]
const REGISTERS: Option<&[usize]> = Some(&[112, 104, 96, 88, 72, 64]);
#[cfg(target_arch = "aarch64")]
const REGISTERS: Option<&[usize]> = Some(&[0, 8, 16, 24, 32, 40]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REGISTERS: Option<&[usize]> = None;

/// The part of a program that is its place's own: it puts the numbers of the record where [`kept`] says, and
/// jumps to the end if its device is not asked for. R6 is what the program began with.
struct Writer<'a> {
    p: Assembler,
    devices: &'a [(u32, u32)],
    end: Label,
}

impl Writer<'_> {
    /// Goes on if the device in the register is asked for.
    fn check(&mut self, device: Register) {
        let asked_for = self.p.label();
        for one in self.devices {
            self.p.jump_if_half_is(device, super::number_of(*one), asked_for);
        }
        self.p.jump(self.end);
        self.p.place(asked_for);
        self.p.store(Register::R10, kept::DEVICE, device);
    }

    fn layout(&mut self, layout: &Layout) -> io::Result<()> {
        use Register::{R1, R6, R7, R10};
        self.p.load(R7, R6, layout.dev);
        self.check(R7);
        self.p.load(R7, R6, layout.first);
        self.p.store(R10, kept::FIRST, R7);
        if layout.taken == Taken::Added {
            self.p.and(R7, ADDED_MASK as i32);
            self.p.jump_if_not_zero(R7, self.end);
        }
        for (field, place) in [(layout.ino, kept::INODE), (layout.last, kept::LAST)] {
            self.p.load(R1, R6, field);
            self.p.store(R10, place, R1);
        }
        Ok(())
    }

    fn site(&mut self, site: &Site, arguments: Arguments) -> io::Result<()> {
        use Register::{R1, R7, R8, R9, R10};
        self.value(R9, &site.inode, arguments)?;
        self.follow(R7, R9, site.members.file_system, arguments);
        self.follow(R7, R7, site.members.device, arguments);
        self.check(R7);
        self.follow(R1, R9, site.members.number, arguments);
        self.p.store(R10, kept::INODE, R1);
        match &site.span {
            Span::Pages(first, last) => {
                self.value(R8, first, arguments)?;
                self.value(R9, last, arguments)?;
            }
            Span::Bytes(start, count) => {
                self.value(R8, start, arguments)?;
                self.value(R9, count, arguments)?;
                self.p.jump_if_zero(R9, self.end);
                self.p.subtract(R9, 1);
                self.p.add_register(R9, R8);
                let bits = page_bytes().trailing_zeros() as i32;
                self.p.shift_right(R8, bits);
                self.p.shift_right(R9, bits);
            }
        }
        self.p.store(R10, kept::FIRST, R8);
        self.p.store(R10, kept::LAST, R9);
        Ok(())
    }

    /// `to` = the value.
    fn value(&mut self, to: Register, value: &Value, arguments: Arguments) -> io::Result<()> {
        let offset = match arguments {
            Arguments::InOrder => 8 * value.argument,
            Arguments::Registers(known) => *known.get(value.argument).ok_or(io::ErrorKind::Unsupported)?,
        };
        self.p.load(to, Register::R6, Field { offset, size: 8 });
        for member in &value.members {
            match value.plain {
                true => self.read(to, to, *member),
                false => self.follow(to, to, *member, arguments),
            }
        }
        Ok(())
    }

    /// `to` = the member of the structure at `from`.
    fn follow(&mut self, to: Register, from: Register, member: Field, arguments: Arguments) {
        match arguments {
            Arguments::InOrder => self.p.load(to, from, member),
            Arguments::Registers(_) => self.read(to, from, member),
        }
    }

    /// The same by a call; memory that cannot be read has zeros.
    fn read(&mut self, to: Register, from: Register, member: Field) {
        use Register::{R1, R2, R3, R10};
        self.p.copy(R3, from);
        self.p.add(R3, member.offset as i32);
        self.p.copy(R1, R10);
        self.p.add(R1, i32::from(kept::FOLLOWED));
        self.p.set(R2, member.size as i32);
        self.p.call(Call::ReadKernel);
        self.p.load_at(to, R10, kept::FOLLOWED, member.size);
    }
}
