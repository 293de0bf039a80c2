//! With samples of each tracepoint, in a ring for each processor, with a filter in the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::{ADDED_MASK, CacheEvent, Drained, Layout, RING_PAGES, Taken};
use crate::perf::{Ring, Sample, processors};
use crate::tracepoint::Field;

#[derive(Debug)]
pub(super) struct Samples {
    kind: Field,
    layouts: Vec<Layout>,
    rings: Vec<Ring>,
    own: u32,
    /// Events with their times, which order those of different processors.
    heard: Vec<(u64, CacheEvent)>,
}

impl Samples {
    pub(super) fn open(kind: Field, layouts: Vec<Layout>, devices: &[(u32, u32)]) -> io::Result<Samples> {
        let names: Vec<String> =
            devices.iter().map(|device| format!("s_dev == {}", super::number_of(*device))).collect();
        let all = names.join(" || ");
        let few = format!("!(index & {ADDED_MASK}) && ({all})");
        let filter = |l: &Layout| if l.taken == Taken::Added { few.as_str() } else { all.as_str() };
        let points: Vec<(u64, &str)> = layouts.iter().map(|l| (l.number, filter(l))).collect();
        let mut rings = Vec::new();
        for processor in processors()? {
            let mut tries = RING_PAGES.iter().map(|&pages| Ring::open(processor, &points, pages));
            // Tries a smaller ring if a large one exceeds what this user may lock.
            let ring = tries.find(|t| !matches!(t, Err(e) if is_too_large(e)));
            match ring {
                Some(Ok(ring)) => rings.push(ring),
                // The processor went offline a moment ago.
                Some(Err(e)) if e.raw_os_error() == Some(libc::ENODEV) => {}
                Some(Err(e)) => return Err(e),
                None => return Err(io::Error::from_raw_os_error(libc::EPERM)),
            }
        }
        Ok(Samples { kind, layouts, rings, own: std::process::id(), heard: Vec::new() })
    }

    pub(super) fn drain(&mut self, into: &mut Vec<CacheEvent>) -> Drained {
        let mut drained = Drained::default();
        for ring in &mut self.rings {
            drained.lost += ring.drain(|sample| {
                if sample.pid == self.own {
                    drained.own += 1;
                } else if let Some(event) = event(self.kind, &self.layouts, sample) {
                    self.heard.push((sample.time, event));
                }
            });
        }
        self.heard.sort_by_key(|(time, _)| *time);
        into.extend(self.heard.drain(..).map(|(_, event)| event));
        drained
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }
}

/// Whether a ring exceeds what this user may lock in memory.
fn is_too_large(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

fn event(kind: Field, layouts: &[Layout], sample: Sample<'_>) -> Option<CacheEvent> {
    let number = kind.read(sample.raw)?;
    let layout = layouts.iter().find(|l| l.number == number)?;
    let first = layout.first.read(sample.raw)?;
    Some(CacheEvent {
        taken: layout.taken,
        dev: super::device(layout.dev.read(sample.raw)? as u32),
        ino: layout.ino.read(sample.raw)?,
        first,
        last: layout.last.read(sample.raw)?.max(first),
        pid: sample.pid,
        tid: sample.tid,
    })
}
