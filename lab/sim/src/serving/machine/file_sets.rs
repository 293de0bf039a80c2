//! A program beside the load that reads every file of a disk in any order, over and over, and the daemon's
//! side of its file set: the very same decisions ([`seekless_policy::filesets`]) as in the daemon.
//!
//! The program sorts its files by their addresses, as `seekless order` does, and keeps as many ranges added
//! as it may. It takes ranges one after the other, at a rate of its own. A message costs a wake-up.

use std::collections::BTreeMap;

use seekless_base::{Lba, Nanos, part_of};
use seekless_policy::filesets::{
    Action, FileSets, Outcome, RANGES_MAX, Range, RangeId, SetId, StepId, room, side_by_side,
};
use seekless_policy::{Demand, Event, Request, RequestId};

use super::{Ev, Machine};
use crate::serving::cache::PAGE;
use crate::serving::record::FileSetReport;

/// The one set of a disk. Its lanes are the parts of the disk.
const SET: SetId = SetId(0);

/// The program, and its set at the daemon.
pub(super) struct SetReader {
    sets: FileSets,
    /// What it reads, in this order and over and over: file, offset, length.
    list: Vec<(u32, u64, u64)>,
    /// Which of it comes next.
    next: usize,
    next_range: u32,
    /// Ranges that were added and not taken: file, offset, length.
    ranges: BTreeMap<RangeId, (u32, u64, u64)>,
    requests: BTreeMap<StepId, RequestId>,
    steps: BTreeMap<RequestId, StepId>,
    /// When the program has taken what it has.
    busy_until: Nanos,
    /// Bytes that it took after the warm-up.
    taken: u64,
}

impl Machine<'_> {
    pub(super) fn begin_file_sets(&mut self) {
        let Some(load) = self.config.file_set.filter(|_| !self.engines.is_empty()) else { return };
        let files = self.catalogue.videos().len() as u32;
        for disk in 0..self.disks.len() as u32 {
            let mut sorted: Vec<u32> = (0..files).collect();
            sorted.sort_by_key(|&local| self.disks[disk as usize].lba(local as usize, 0));
            let ranges = |local: u32| {
                let size = self.catalogue.video(local).size.0;
                let range = load.range.0.max(1);
                let part = move |offset| (disk * files + local, offset, range.min(size - offset));
                (0..size).step_by(range as usize).map(part)
            };
            let lane = |&(file, offset, _): &(u32, u64, u64)| {
                self.lane_at(self.disks[disk as usize].lba((file - disk * files) as usize, offset)) as usize
            };
            // Of a disk whose parts have heads of their own, ranges of all parts side by side.
            let list = side_by_side(sorted.into_iter().flat_map(ranges).collect(), lane, |range| range.2);
            let list = list.collect();
            let mut sets = FileSets::new();
            let opened = sets.open(SET, load.window.0);
            debug_assert!(opened.is_ok(), "the first of its disk");
            self.file_sets.push(SetReader {
                sets,
                list,
                next: 0,
                next_range: 0,
                ranges: BTreeMap::new(),
                requests: BTreeMap::new(),
                steps: BTreeMap::new(),
                busy_until: Nanos::ZERO,
                taken: 0,
            });
            self.file_sets_have_room(self.engine_of(disk));
            self.add_ranges(disk);
        }
    }

    /// The budget of an engine may have changed.
    pub(super) fn file_sets_have_room(&mut self, e: u32) {
        let bytes = room(self.engines[e as usize].policy.stats().budget);
        for disk in 0..self.file_sets.len() as u32 {
            if self.engine_of(disk) != e {
                continue;
            }
            for lane in 0..=self.parts().len() as u32 {
                self.file_sets[disk as usize].sets.room(lane, bytes);
            }
            self.act_for_file_set(disk);
        }
    }

    /// Where parts of a disk begin that have heads of their own, but the first.
    fn parts(&self) -> &[Lba] {
        self.config.engine.as_ref().map_or(&[], |engine| &engine.policy.parts)
    }

    fn lane_at(&self, lba: Lba) -> u32 {
        part_of(self.parts(), lba) as u32
    }

    /// The program adds what it may.
    fn add_ranges(&mut self, disk: u32) {
        if self.config.file_set.is_none() {
            return;
        }
        while self.file_sets[disk as usize].ranges.len() < RANGES_MAX {
            let reader = &self.file_sets[disk as usize];
            let next = reader.list.get(reader.next % reader.list.len().max(1));
            let Some(&(file, offset, len)) = next else { break };
            let local = self.place(file).1;
            let lba = self.disks[disk as usize].lba(local, offset);
            let (place, lane) = (Some(lba), self.lane_at(lba));
            let range = Range { file: self.file_id(file), offset, len, place, lane };
            let reader = &mut self.file_sets[disk as usize];
            reader.next += 1;
            let id = RangeId(reader.next_range);
            reader.next_range = reader.next_range.wrapping_add(1);
            let added = reader.sets.add(SET, id, range);
            debug_assert!(added.is_ok(), "within bounds");
            reader.ranges.insert(id, (file, offset, len));
        }
        self.act_for_file_set(disk);
    }

    /// Does what is to be done for a disk's file set.
    fn act_for_file_set(&mut self, disk: u32) {
        let e = self.engine_of(disk);
        while let Some(action) = self.file_sets[disk as usize].sets.poll() {
            match action {
                Action::Ask { step, file, offset, len, place, .. } => {
                    let number = file.ino as u32;
                    let pages = seekless_base::wants::pages(offset, offset + len);
                    let absent = self.cache.first_absent(number, pages.start, pages.end);
                    if absent == pages.end {
                        self.file_sets[disk as usize].sets.answered(step, Outcome::There);
                        continue;
                    }
                    let missing = (absent * PAGE).max(offset);
                    let file_size = self.catalogue.video(self.place(number).1 as u32).size.0;
                    let id = self.engines[e as usize].unheard_id();
                    let request = Request {
                        id,
                        file,
                        from: offset,
                        offset: missing,
                        len: offset + len - missing,
                        file_size,
                        lba: place.map(|first| first.plus_bytes(missing - offset)),
                        demand: Demand { file_set: true, ..Demand::default() },
                    };
                    self.engines[e as usize].of_file_sets.insert(id, disk);
                    let reader = &mut self.file_sets[disk as usize];
                    reader.requests.insert(step, id);
                    reader.steps.insert(id, step);
                    self.tell(e, Event::Request(request));
                }
                Action::Cancel { step } => {
                    if let Some(&id) = self.file_sets[disk as usize].requests.get(&step) {
                        self.tell(e, Event::Cancel(id));
                    }
                }
                Action::Took { step, read } => {
                    if let Some(request) = self.file_sets[disk as usize].requests.remove(&step) {
                        self.tell(e, Event::Took { request, read });
                    }
                }
                Action::Ready { range, .. } => self.range_is_ready(disk, range),
            }
        }
    }

    /// The program takes a range after those that it has.
    fn range_is_ready(&mut self, disk: u32, range: RangeId) {
        let Some(load) = self.config.file_set else { return };
        let now = self.now + self.config.costs.wake;
        let reader = &mut self.file_sets[disk as usize];
        let Some(&(_, _, len)) = reader.ranges.get(&range) else { return };
        let takes = Nanos::from_secs_f64(len as f64 / load.rate.max(1.0));
        reader.busy_until = reader.busy_until.max(now) + takes;
        let at = reader.busy_until;
        self.plan(at, Ev::TookRange(disk, range.0));
    }

    pub(super) fn step_ended(&mut self, disk: u32, request: RequestId, came: bool) {
        let reader = &mut self.file_sets[disk as usize];
        let Some(step) = reader.steps.remove(&request) else { return };
        if !came {
            reader.requests.remove(&step);
            self.tell(self.engine_of(disk), Event::Took { request, read: false });
        }
        let outcome = if came { Outcome::Fetched } else { Outcome::Passed };
        self.file_sets[disk as usize].sets.answered(step, outcome);
        self.act_for_file_set(disk);
    }

    pub(super) fn took_range(&mut self, disk: u32, range: u32) {
        let range = RangeId(range);
        let Some((file, offset, len)) = self.file_sets[disk as usize].ranges.remove(&range) else { return };
        let pages = seekless_base::wants::pages(offset, offset + len);
        self.cache.touch(file, pages.start, pages.end);
        let measures = self.record.measures(self.now);
        let reader = &mut self.file_sets[disk as usize];
        reader.taken += if measures { len } else { 0 };
        reader.sets.took(SET, range, true);
        self.act_for_file_set(disk);
        self.add_ranges(disk);
    }

    /// What the sets had since the warm-up.
    pub(super) fn file_set_report(&self) -> Option<FileSetReport> {
        if self.file_sets.is_empty() {
            return None;
        }
        let (mut disk_time, mut of_sets) = (0.0, 0.0);
        for engine in &self.engines {
            let stats = engine.policy.stats();
            disk_time += (stats.disk_time - engine.times_before.0).as_secs_f64();
            of_sets += (stats.file_sets.disk_time - engine.times_before.1).as_secs_f64();
        }
        let taken: u64 = self.file_sets.iter().map(|reader| reader.taken).sum();
        let seconds = self.now.since(self.config.warmup).as_secs_f64().max(1e-9);
        Some(FileSetReport {
            mb_per_s: taken as f64 / 1e6 / seconds,
            share: if disk_time > 0.0 { of_sets / disk_time } else { 0.0 },
        })
    }
}
