//! A running set: commands on the set become commands of its spindles, each with a queue of its own.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};

use super::layout::SetLayout;
use super::plan::{Extent, Phase, Planner};
use super::spindle::{Spindle, SpindleStats};
use super::{Health, SetSpec};
use crate::drive::spread::{Layout as Spread, Spread as Part};
use crate::drive::{Command, Completion, DriveSpec, Op, QueueFull, ServiceTime};

/// Sectors rebuilt in one step: long enough that the rebuild runs at nearly the members' rate (md also keeps
/// some hundreds of KiB in flight).
const REBUILD_STEP: u64 = 2048;

/// Rate of a rebuild in bytes a second while the set has other work: md's `speed_limit_min` as the kernel
/// sets it.
const REBUILD_RATE_MIN: u64 = 1_024_000;

/// Requests in a member's block queue besides those in its drive: the kernel's `nr_requests` for a SATA drive
/// (twice the drive's 32). With half as many, the kernel's read-ahead of several clients waits a little less
/// behind others on striped sets; with twice as many nothing changes.
const MEMBER_REQUESTS: usize = 64;

/// Bytes that stay together if an actuator's share is spread over the stroke of its heads, as for a small
/// disk ([`crate::drive::spread`]).
const ACTUATOR_CHUNK: u64 = 64 << 20;

/// The completion of a command on a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCompletion {
    /// The command and its times. The parts of its service time are those of the member that ended last.
    pub done: Completion,
    /// Too many members are missing: nothing was transferred, or only a part.
    pub failed: bool,
}

/// Why a change of a set is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetError(String);

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SetError {}

/// Running drives of one kind behind one address space, driven like a [`crate::drive::Drive`]; with one drive
/// and one actuator it is that drive.
#[derive(Clone, Debug)]
pub struct DriveSet {
    spec: Arc<DriveSpec>,
    layout: SetLayout,
    /// Sectors of a member that each of its actuators has, and their places under its heads.
    share: u64,
    under_heads: Option<Spread>,
    spindles: Vec<Spindle>,
    health: Vec<Health>,
    clock: u64,
    works: BTreeMap<u64, Work>,
    /// The work to which each member command belongs.
    parts: BTreeMap<u64, u64>,
    done: VecDeque<SetCompletion>,
    next_id: u64,
    /// Number of the host's commands among the works.
    present: usize,
    /// When the next step of a rebuild begins; `None` while one is in progress, or nothing needs a rebuild.
    next_step: Option<Nanos>,
    /// When the last step began.
    last_step: Nanos,
}

/// A command on the set, or a step of a rebuild.
#[derive(Clone, Debug)]
struct Work {
    what: What,
    arrived: Nanos,
    started: Nanos,
    phases: VecDeque<Phase>,
    /// Number of member commands in progress.
    left: usize,
    service: ServiceTime,
    /// Whether a member failed during it, so that it is planned again.
    again: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Host(Command),
    /// Of this member, up to this sector.
    Rebuild(u32, u64),
}

impl DriveSet {
    /// Idle drives at time zero. The first part of each member's capacity is used, in whole chunks.
    ///
    /// # Errors
    /// [`SetSpec::check`]'s.
    pub fn new(spec: &DriveSpec, set: SetSpec) -> Result<DriveSet, SetError> {
        set.check().map_err(SetError)?;
        let share = spec.sectors() / u64::from(set.actuators);
        // The heads of an actuator move over the whole stroke of its share of the platters.
        let under_heads = (set.actuators > 1)
            .then(|| Spread::new(share * SECTOR_BYTES, spec.sectors(), Part::FULL, ACTUATOR_CHUNK))
            .transpose()
            .map_err(SetError)?;
        Ok(DriveSet {
            layout: SetLayout::new(set, share * u64::from(set.actuators)).map_err(SetError)?,
            share,
            under_heads,
            spindles: (0..set.spindles()).map(|_| Spindle::new(spec)).collect(),
            health: vec![Health::Whole; set.members as usize],
            spec: Arc::new(spec.clone()),
            clock: 0,
            works: BTreeMap::new(),
            parts: BTreeMap::new(),
            done: VecDeque::new(),
            next_id: 0,
            present: 0,
            next_step: None,
            last_step: Nanos::ZERO,
        })
    }

    /// What each member was built from.
    pub fn spec(&self) -> &DriveSpec {
        &self.spec
    }

    /// Its address map.
    pub fn layout(&self) -> &SetLayout {
        &self.layout
    }

    /// 512-byte sectors of the set.
    pub fn sectors(&self) -> u64 {
        self.layout.sectors()
    }

    /// Bytes of the set.
    pub fn capacity(&self) -> Bytes {
        self.layout.capacity()
    }

    /// Total depth of its drives' queues.
    pub fn depth(&self) -> usize {
        self.spec.queue.depth.max(1) as usize * self.spindles.len()
    }

    /// Maximum number of commands. A drive has its queue. md has none, but hands every command to a member,
    /// where commands beyond the drive's queue wait in the block layer's.
    pub fn accepts(&self) -> usize {
        match self.layout.spec().members {
            1 => self.depth(),
            members => self.depth() + members as usize * MEMBER_REQUESTS,
        }
    }

    /// Number of commands that were submitted and whose completion was not polled.
    pub fn queue_len(&self) -> usize {
        self.present + self.done.len()
    }

    /// The state of each member.
    pub fn health(&self) -> &[Health] {
        &self.health
    }

    /// Slow-down factor of each member.
    pub fn slowness(&self) -> impl Iterator<Item = f64> + '_ {
        self.spindles.iter().step_by(self.layout.spec().actuators as usize).map(Spindle::factor)
    }

    /// Counters of each spindle; those of a drive with two actuators are adjacent.
    pub fn stats(&self, now: Nanos) -> Vec<SpindleStats> {
        self.spindles.iter().map(|s| s.stats(now)).collect()
    }

    /// [`crate::drive::Drive::write_time`] of all spindles.
    pub fn write_time(&self) -> Nanos {
        self.spindles.iter().fold(Nanos::ZERO, |sum, s| sum + s.write_time())
    }

    /// Sets the spindles' counters to zero.
    pub fn reset_stats(&mut self, now: Nanos) {
        self.spindles.iter_mut().for_each(|s| s.reset(now));
    }

    /// A command arrives at `now`. Time must not go backwards; an earlier `now` counts as the latest one.
    ///
    /// # Errors
    /// [`QueueFull`] at [`DriveSet::accepts`]; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<(), QueueFull> {
        if self.queue_len() >= self.accepts() {
            return Err(QueueFull);
        }
        self.advance(now);
        self.present += 1;
        self.take_up(What::Host(command), Nanos(self.clock));
        Ok(())
    }

    /// When to call [`DriveSet::poll`] next, given the present work. It may return nothing then, because a
    /// member ended or a rebuild went on.
    pub fn next_event(&mut self) -> Option<Nanos> {
        match self.done.front() {
            Some(front) => Some(front.done.finished),
            None => self.due().map(|(at, _)| at),
        }
    }

    /// The next command that is done by `now`. Call it until it returns `None`.
    pub fn poll(&mut self, now: Nanos) -> Option<SetCompletion> {
        self.advance(now);
        self.done.pop_front()
    }

    /// From `now` on a member takes `factor` times as long for everything; 1 or less is its normal speed.
    ///
    /// # Errors
    /// There is no such member.
    pub fn slow(&mut self, now: Nanos, member: u32, factor: f64) -> Result<(), SetError> {
        self.known(member)?;
        self.advance(now);
        let factor = if factor.is_finite() { factor.max(1.0) } else { 1.0 };
        let (now, each) = (Nanos(self.clock), self.layout.spec().actuators);
        for i in member * each..(member + 1) * each {
            self.spindles[i as usize].slow(now, factor);
        }
        Ok(())
    }

    /// A member fails. Commands in its drive end; those that wait for it are planned again.
    ///
    /// # Errors
    /// There is no such member.
    pub fn fail(&mut self, now: Nanos, member: u32) -> Result<(), SetError> {
        self.known(member)?;
        self.advance(now);
        self.health[member as usize] = Health::Failed;
        let each = self.layout.spec().actuators;
        for i in member * each..(member + 1) * each {
            for command in self.spindles[i as usize].withdraw() {
                if let Some(work) = self.parts.remove(&command.id)
                    && let Some(w) = self.works.get_mut(&work)
                {
                    w.left -= 1;
                    w.again = true;
                }
            }
        }
        // Phases to come may name it.
        self.works.values_mut().filter(|w| !w.phases.is_empty()).for_each(|w| w.again = true);
        let stuck: Vec<u64> = self.works.iter().filter(|(_, w)| w.left == 0).map(|(&id, _)| id).collect();
        stuck.into_iter().for_each(|id| self.go_on(id));
        self.plan_step();
        Ok(())
    }

    /// A member is new and empty, and is rebuilt from the others.
    ///
    /// # Errors
    /// There is no such member, or its data cannot be computed.
    pub fn rebuild(&mut self, now: Nanos, member: u32) -> Result<(), SetError> {
        self.known(member)?;
        let kind = self.layout.spec().kind;
        if !kind.is_redundant() {
            return Err(SetError(format!("{kind} keeps nothing to rebuild a member from")));
        }
        self.advance(now);
        self.health[member as usize] = Health::Rebuilding(0);
        self.plan_step();
        Ok(())
    }

    /// A member is whole again, at its normal speed.
    ///
    /// # Errors
    /// There is no such member.
    pub fn mend(&mut self, now: Nanos, member: u32) -> Result<(), SetError> {
        self.slow(now, member, 1.0)?;
        self.health[member as usize] = Health::Whole;
        Ok(())
    }

    fn known(&self, member: u32) -> Result<(), SetError> {
        let members = self.layout.spec().members;
        if member < members {
            return Ok(());
        }
        Err(SetError(format!("there is no member {member}: they are numbered 0 to {}", members - 1)))
    }

    /// The next event, and its spindle (`None`: a step of a rebuild begins).
    fn due(&mut self) -> Option<(Nanos, Option<usize>)> {
        let mut first = self.next_step.map(|at| (at, None));
        for (i, spindle) in self.spindles.iter_mut().enumerate() {
            if let Some(at) = spindle.next()
                && first.is_none_or(|(t, _)| at < t)
            {
                first = Some((at, Some(i)));
            }
        }
        first
    }

    /// Processes everything that is due by `now`, in order.
    fn advance(&mut self, now: Nanos) {
        let now = now.0.min(u64::MAX / 4);
        while let Some((at, which)) = self.due()
            && at.0 <= now
        {
            self.clock = self.clock.max(at.0);
            let at = Nanos(self.clock);
            match which {
                None => self.step(at),
                Some(i) => {
                    let done = self.spindles[i].complete(at);
                    debug_assert!(done.is_some(), "a completion is there when it is due");
                    let Some(done) = done else { break };
                    self.part_done(i, &done);
                }
            }
        }
        self.clock = self.clock.max(now);
    }

    /// Plans a work and begins it.
    fn take_up(&mut self, what: What, arrived: Nanos) {
        let id = self.next_id;
        self.next_id += 1;
        let work = Work {
            what,
            arrived,
            started: Nanos::MAX,
            phases: VecDeque::new(),
            left: 0,
            service: ServiceTime::default(),
            again: true,
        };
        self.works.insert(id, work);
        self.go_on(id);
    }

    /// Sectors of a command, cut to the set.
    fn span(&self, command: &Command) -> (u64, u64) {
        let start = command.lba.0.min(self.sectors() - 1);
        (start, start.saturating_add(u64::from(command.sectors.max(1))).min(self.sectors()))
    }

    /// No command of a work is in progress: its next phase begins, or it ends.
    fn go_on(&mut self, id: u64) {
        let Some(work) = self.works.get_mut(&id) else { return };
        let mut lost = false;
        if core::mem::take(&mut work.again) {
            let what = work.what;
            match self.plan(what) {
                Ok(phases) => {
                    if let Some(work) = self.works.get_mut(&id) {
                        work.phases = phases.into();
                    }
                }
                Err(super::plan::Lost) => lost = true,
            }
        }
        let phase = match self.works.get_mut(&id) {
            Some(work) if !lost => work.phases.pop_front(),
            _ => None,
        };
        match phase {
            Some(phase) => self.begin(id, &phase),
            None => self.end(id, lost),
        }
    }

    fn plan(&self, what: What) -> Result<Vec<Phase>, super::plan::Lost> {
        let planner = Planner { layout: &self.layout, health: &self.health };
        // The members chosen earlier for the same command, with the end of the last read: these count as
        // pending.
        let mut chosen: Vec<(u32, u64)> = Vec::new();
        let mut choose = |copies: &[(u32, u64)], len: u64| {
            let of = |&(member, sector): &(u32, u64)| {
                let spindle = &self.spindles[self.spindle_of(member, sector).0];
                match chosen.iter().find(|&&(earlier, _)| earlier == member) {
                    Some(&(_, end)) => (end, spindle.pending as u64 + 1),
                    None => (spindle.read_end, spindle.pending as u64),
                }
            };
            let picked = balance(copies, of);
            let (member, sector) = copies[picked];
            match chosen.iter_mut().find(|(earlier, _)| *earlier == member) {
                Some((_, end)) => *end = sector + len,
                None => chosen.push((member, sector + len)),
            }
            picked
        };
        match what {
            What::Host(command) => {
                let (start, end) = self.span(&command);
                match command.op {
                    Op::Read => planner.read(start, end, &mut choose),
                    Op::Write => planner.write(start, end),
                    Op::Flush => Ok(planner.flush()),
                }
            }
            What::Rebuild(member, upto) => match self.health[member as usize] {
                Health::Rebuilding(from) if from < upto => planner.rebuild(member, from, upto, &mut choose),
                // It has failed meanwhile, or was repaired.
                _ => Ok(Vec::new()),
            },
        }
    }

    /// The spindle that has this sector of a member, and the sector of its drive.
    fn spindle_of(&self, member: u32, sector: u64) -> (usize, u64, u64) {
        let each = self.layout.spec().actuators;
        let Some(under_heads) = &self.under_heads else { return (member as usize, sector, u64::MAX) };
        let actuator = (sector / self.share).min(u64::from(each) - 1);
        let within = sector - actuator * self.share;
        let (lba, together) = under_heads.locate(within * SECTOR_BYTES);
        let spindle = member as usize * each as usize + actuator as usize;
        (spindle, lba.0, (together / SECTOR_BYTES).min((self.share - within).max(1)))
    }

    /// Hands the commands of a phase to the spindles.
    fn begin(&mut self, work: u64, phase: &Phase) {
        let now = Nanos(self.clock);
        let mut commands = 0;
        let each = self.layout.spec().actuators;
        for &Extent { member, start, end } in &phase.extents {
            if phase.op == Op::Flush {
                for spindle in member * each..(member + 1) * each {
                    let id = self.next_id;
                    self.next_id += 1;
                    self.parts.insert(id, work);
                    let command = Command { id, op: Op::Flush, lba: Lba(0), sectors: 1 };
                    self.spindles[spindle as usize].submit(now, command);
                    commands += 1;
                }
                continue;
            }
            let mut at = start;
            while at < end {
                let (spindle, lba, together) = self.spindle_of(member, at);
                let sectors = together.min(end - at).min(u64::from(u32::MAX));
                at += sectors;
                let id = self.next_id;
                self.next_id += 1;
                self.parts.insert(id, work);
                if phase.op == Op::Read {
                    self.spindles[spindle].read_end = at;
                }
                let command = Command { id, op: phase.op, lba: Lba(lba), sectors: sectors as u32 };
                self.spindles[spindle].submit(now, command);
                commands += 1;
            }
        }
        if let Some(work) = self.works.get_mut(&work) {
            work.left = commands;
        }
    }

    fn part_done(&mut self, spindle: usize, done: &Completion) {
        let Some(id) = self.parts.remove(&done.id) else { return };
        let Some(work) = self.works.get_mut(&id) else { return };
        work.left -= 1;
        work.started = work.started.min(done.started);
        work.service = done.service;
        if matches!(work.what, What::Rebuild(..)) {
            self.spindles[spindle].stats.rebuild_bytes += u64::from(done.sectors) * SECTOR_BYTES;
        }
        if self.works.get(&id).is_some_and(|w| w.left == 0) {
            self.go_on(id);
        }
    }

    fn end(&mut self, id: u64, lost: bool) {
        let Some(work) = self.works.remove(&id) else { return };
        let now = Nanos(self.clock);
        match work.what {
            What::Host(Command { id, op, lba, sectors }) => {
                self.present -= 1;
                let (arrived, started) = (work.arrived, work.started.min(now));
                let done = Completion {
                    id,
                    op,
                    lba,
                    sectors,
                    arrived,
                    started,
                    finished: now,
                    service: work.service,
                };
                self.done.push_back(SetCompletion { done, failed: lost });
                // Only the rebuild uses the set.
                if self.present == 0 && self.next_step.is_some() {
                    self.next_step = Some(now);
                }
            }
            What::Rebuild(member, upto) => {
                let health = &mut self.health[member as usize];
                if lost {
                    *health = Health::Failed;
                } else if let Health::Rebuilding(from) = *health {
                    let whole = from.max(upto) >= self.layout.member_sectors();
                    *health = if whole { Health::Whole } else { Health::Rebuilding(from.max(upto)) };
                }
                self.plan_step();
            }
        }
    }

    /// The member being rebuilt, and from where.
    fn rebuilding(&self) -> Option<(u32, u64)> {
        let all = self.health.iter().enumerate();
        let mut found = all.filter_map(|(i, h)| match h {
            Health::Rebuilding(from) => Some((i as u32, *from)),
            _ => None,
        });
        found.next()
    }

    /// Sets when the next step of a rebuild begins: at once in an idle set, at the lowest rate in a busy one.
    fn plan_step(&mut self) {
        let under_way = self.works.values().any(|w| matches!(w.what, What::Rebuild(..)));
        if under_way || self.rebuilding().is_none() {
            self.next_step = None;
            return;
        }
        let now = Nanos(self.clock);
        let each = Nanos(REBUILD_STEP * SECTOR_BYTES * 1_000_000_000 / REBUILD_RATE_MIN);
        self.next_step = Some(if self.present == 0 { now } else { now.max(self.last_step + each) });
    }

    fn step(&mut self, now: Nanos) {
        self.next_step = None;
        let Some((member, from)) = self.rebuilding() else { return };
        self.last_step = now;
        let upto = (from + REBUILD_STEP).min(self.layout.member_sectors());
        self.take_up(What::Rebuild(member, upto), now);
    }
}

/// md's choice between mirrors of rotating disks (`read_balance` of its raid1): a read that continues where
/// one ended stays on that member, else an idle member takes it, else the one whose last read ended nearest.
/// `of` gives, for a copy, where the last read of its member ended, and its number of commands.
fn balance(copies: &[(u32, u64)], of: impl Fn(&(u32, u64)) -> (u64, u64)) -> usize {
    let all = || copies.iter().enumerate();
    if let Some((i, _)) = all().find(|(_, copy)| of(copy).0 == copy.1) {
        return i;
    }
    let distance = |copy: &(u32, u64)| of(copy).0.abs_diff(copy.1);
    let idle = all().filter(|(_, copy)| of(copy).1 == 0).min_by_key(|(_, copy)| distance(copy));
    let nearest = || all().min_by_key(|(_, copy)| distance(copy));
    idle.or_else(nearest).map_or(0, |(i, _)| i)
}
