//! The anticipatory scheduler of Linux 2.6.0 to 2.6.32 (`as-iosched.c`, the text of 2.6.16; reads only).
//!
//! An elevator that goes either way, with one thing more: after a thread's request is done the disk stays
//! idle for up to 6.7 ms, because its next one is probably near. It does not wait, or waits no longer, when
//! the thread has more requests queued, when the best waiting request is near as well or nearer than this
//! thread's usual next one, or when the thread usually thinks for longer than that. What it expects of
//! threads it does not know yet (it watches how many exit) is left out: the threads of our servers live on.

use std::collections::BTreeMap;

use seekless_base::Nanos;

use super::{Pick, Waiting};

/// How long the disk is kept idle (`default_antic_expire`).
const ANTICIPATE: Nanos = Nanos::from_micros(6_667);
/// A read this old goes first, if none did for as long (`default_read_expire`).
const EXPIRE: Nanos = Nanos::from_millis(125);
/// No longer think time is recorded (`MAX_THINKTIME`).
const THINK_MAX: Nanos = Nanos::from_millis(20);
/// The elevator goes back at most so far, and counts it double (`MAXBACK`).
const BACK_SECTORS: u64 = 1 << 20;
/// A request is near within so many sectors, twice as many after each millisecond of waiting.
const NEAR_SECTORS: u64 = 8192;
/// Beyond this many milliseconds everything is near.
const NEAR_MS_MAX: u64 = 20;
/// A single jump counts at most as four times the mean distance and this many sectors.
const JUMP_SECTORS: f64 = 2.0 * 1024.0 * 64.0;
/// Weight of the newest think time and distance.
const NEWEST: f64 = 1.0 / 8.0;

/// How a thread reads.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    /// Requests it has queued or with the drive.
    under_way: u32,
    /// Where its last request ended, and when it was done.
    end: Option<u64>,
    done: Nanos,
    /// Means over its requests: time from an answer to the next request, nanoseconds, and sectors between two
    /// requests.
    think: Option<f64>,
    distance: Option<f64>,
}

fn follow(mean: &mut Option<f64>, value: f64) {
    let old = mean.unwrap_or(value);
    *mean = Some(old + NEWEST * (value - old));
}

/// The state of the scheduler.
#[derive(Clone, Debug, Default)]
pub(super) struct Anticipatory {
    head: u64,
    habits: BTreeMap<u32, Habit>,
    /// The thread served last, and when its request was done.
    served: Option<(u32, Option<Nanos>)>,
    /// It was waited for in vain, until something else is served.
    given_up: bool,
    checked: Nanos,
}

impl Anticipatory {
    /// A request comes in.
    pub(super) fn arrived(&mut self, now: Nanos, request: &Waiting) {
        let habit = self.habits.entry(request.thread).or_default();
        if let Some(end) = habit.end {
            let think = if habit.under_way == 0 { now.since(habit.done).min(THINK_MAX) } else { Nanos::ZERO };
            follow(&mut habit.think, think.0 as f64);
            let jump = request.lba.abs_diff(end) as f64;
            let most = habit.distance.map_or(f64::MAX, |mean| 4.0 * mean + JUMP_SECTORS);
            follow(&mut habit.distance, jump.min(most));
        }
        habit.end = Some(request.end);
        habit.under_way += 1;
    }

    /// A request of this thread is done.
    pub(super) fn done(&mut self, now: Nanos, thread: u32) {
        let habit = self.habits.entry(thread).or_default();
        habit.under_way = habit.under_way.saturating_sub(1);
        habit.done = now;
        if let Some((served, finished)) = &mut self.served
            && *served == thread
        {
            *finished = Some(now);
        }
    }

    pub(super) fn pick(&mut self, now: Nanos, waiting: &[Waiting]) -> Pick {
        let Some(next) = self.nearest(waiting) else { return Pick::Idle };
        if now >= self.checked + EXPIRE {
            self.checked = now;
            if waiting[0].since + EXPIRE < now {
                return self.take(0, waiting);
            }
        }
        match self.served {
            Some((thread, finished)) if !self.given_up && !self.suits(now, &waiting[next], waiting) => {
                match finished {
                    // Its request is still with the drive: what it asks for next comes after that.
                    None => Pick::Idle,
                    Some(at) if now < at + ANTICIPATE && !self.thinks_long(thread) => {
                        Pick::Wait(at + ANTICIPATE)
                    }
                    Some(_) => {
                        self.given_up = true;
                        self.take(next, waiting)
                    }
                }
            }
            _ => self.take(next, waiting),
        }
    }

    fn take(&mut self, i: usize, waiting: &[Waiting]) -> Pick {
        self.head = waiting[i].end;
        self.served = Some((waiting[i].thread, None));
        self.given_up = false;
        Pick::Take(i)
    }

    /// `as_choose_req`: the next one ahead, or one not far behind; else from the start again.
    fn nearest(&self, waiting: &[Waiting]) -> Option<usize> {
        let cost = |w: &Waiting| match w.lba.checked_sub(self.head) {
            Some(ahead) => (false, ahead),
            None if self.head - w.lba <= BACK_SECTORS => (false, 2 * (self.head - w.lba)),
            None => (true, w.lba),
        };
        (0..waiting.len()).min_by_key(|&i| (cost(&waiting[i]), i))
    }

    fn thinks_long(&self, thread: u32) -> bool {
        let think = self.habits.get(&thread).and_then(|h| h.think);
        think.is_some_and(|mean| mean > ANTICIPATE.0 as f64)
    }

    /// `as_can_break_anticipation`: whether the best waiting request is as good as what the thread served
    /// last may ask for.
    fn suits(&self, now: Nanos, best: &Waiting, waiting: &[Waiting]) -> bool {
        let Some((thread, finished)) = self.served else { return true };
        if waiting.iter().any(|w| w.thread == thread) {
            return true;
        }
        let waited_ms = finished.map_or(0, |at| now.since(at).0 / 1_000_000);
        if waited_ms > NEAR_MS_MAX {
            return true;
        }
        let near = NEAR_SECTORS << waited_ms;
        let distance = best.lba.abs_diff(self.head);
        let is_near = if best.lba >= self.head { distance <= near } else { distance <= near / 2 };
        let usual = self.habits.get(&thread).and_then(|h| h.distance);
        is_near || usual.is_some_and(|mean| mean > distance as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lba: u64, thread: u32, since_ms: u64) -> Waiting {
        Waiting { lba, end: lba + 256, thread, since: Nanos::from_millis(since_ms), write: false, sync: true }
    }

    /// A thread that has read two requests in a row, with nothing more queued, at 2 ms.
    fn reader() -> Anticipatory {
        let mut s = Anticipatory::default();
        for (lba, ms) in [(0, 0), (256, 1)] {
            let request = at(lba, 1, ms);
            s.arrived(Nanos::from_millis(ms), &request);
            assert_eq!(s.pick(Nanos::from_millis(ms), &[request]), Pick::Take(0));
            s.done(Nanos::from_millis(ms + 1), 1);
        }
        s
    }

    #[test]
    fn waits_for_a_sequential_thread_and_serves_it() {
        let mut s = reader();
        let (far, now) = (at(9_000_000, 2, 1), Nanos::from_millis(2));
        s.arrived(now, &far);
        assert_eq!(s.pick(now, &[far]), Pick::Wait(now + ANTICIPATE));
        let own = at(512, 1, 3);
        s.arrived(Nanos::from_millis(3), &own);
        assert_eq!(s.pick(Nanos::from_millis(3), &[far, own]), Pick::Take(1));
        assert_eq!(s.pick(Nanos::from_millis(3), &[far]), Pick::Idle, "its request is with the drive");
    }

    #[test]
    fn gives_up_in_time_and_does_not_wait_for_those_who_think() {
        let mut s = reader();
        let far = at(9_000_000, 2, 1);
        s.arrived(Nanos::from_millis(2), &far);
        assert_eq!(s.pick(Nanos::from_millis(9), &[far]), Pick::Take(0));
        let mut s = reader();
        for i in 0..12 {
            // 15 ms between answer and request.
            let now = Nanos::from_millis(17 + 16 * i);
            let own = at(512 + 256 * i, 1, now.0 / 1_000_000);
            s.arrived(now, &own);
            assert_eq!(s.pick(now, &[own]), Pick::Take(0));
            s.done(now + Nanos::from_millis(1), 1);
        }
        let now = Nanos::from_millis(195);
        s.arrived(now, &far);
        let fresh = Waiting { since: now, ..far };
        assert_eq!(s.pick(now, &[fresh]), Pick::Take(0));
    }

    #[test]
    fn a_near_request_of_another_is_as_good() {
        let mut s = reader();
        let near = at(4000, 2, 1);
        s.arrived(Nanos::from_millis(2), &near);
        assert_eq!(s.pick(Nanos::from_millis(2), &[near]), Pick::Take(0));
    }

    #[test]
    fn an_old_request_goes_first() {
        let mut s = reader();
        let (old, near) = (at(9_000_000, 2, 1), at(600, 3, 140));
        s.arrived(Nanos::from_millis(1), &old);
        s.arrived(Nanos::from_millis(140), &near);
        assert_eq!(s.pick(Nanos::from_millis(140), &[old, near]), Pick::Take(0));
    }
}
