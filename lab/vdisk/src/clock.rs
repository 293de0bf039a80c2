//! The drive's own time against real time.
//!
//! The drive model lives on a time line of its own. It runs `speed` times as fast as the wall's, and it can
//! stand still: while the drive hangs, or while a slowed command takes longer than the model says. Both are
//! one mechanism, a stall: drive time stays at a point until a moment on the wall, then goes on from there.
//! Nothing else bends it, so a late wake-up never slows the drive.

use seekless_base::Nanos;

/// Converts between wall time and drive time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// A moment on the wall and the drive time that goes with it; before it, drive time stands still.
    wall: Nanos,
    drive: Nanos,
    speed: f64,
}

impl Clock {
    /// Drive time 0 at wall time 0, drive time running `speed` (greater than 0) times as fast.
    pub fn new(speed: f64) -> Clock {
        Clock { wall: Nanos::ZERO, drive: Nanos::ZERO, speed }
    }

    /// Drive time at wall time `wall`.
    pub fn drive_at(&self, wall: Nanos) -> Nanos {
        self.drive + Nanos((wall.since(self.wall).0 as f64 * self.speed) as u64)
    }

    /// The first moment on the wall at which drive time has reached `drive`.
    pub fn wall_at(&self, drive: Nanos) -> Nanos {
        // Rounded up, so that waking at that moment finds the drive there.
        self.wall + Nanos((drive.since(self.drive).0 as f64 / self.speed).ceil() as u64)
    }

    /// Drive time stands still at `drive` until the wall shows `until`. A later end already set stays.
    pub fn stall(&mut self, drive: Nanos, until: Nanos) {
        self.wall = self.wall.max(until);
        self.drive = drive;
    }

    /// Drive time is at least `drive` at wall time `now`: the drive was run ahead without waiting.
    pub fn advance(&mut self, now: Nanos, drive: Nanos) {
        let at = self.drive_at(now).max(drive);
        self.wall = self.wall.max(now);
        self.drive = at;
    }

    /// Ends a stall at wall time `now`.
    pub fn resume(&mut self, now: Nanos) {
        self.wall = self.wall.min(now);
    }

    /// The wall time at which drive time goes on, past if it does not stand still.
    pub fn resumes_at(&self) -> Nanos {
        self.wall
    }

    /// Whether drive time stands still at wall time `now`.
    pub fn stalled(&self, now: Nanos) -> bool {
        now < self.wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drive_time_runs_at_its_speed_and_stalls_on_demand() {
        let mut clock = Clock::new(4.0);
        assert_eq!(clock.drive_at(Nanos(100)), Nanos(400));
        assert_eq!(clock.wall_at(Nanos(402)), Nanos(101), "rounded up");
        clock.stall(Nanos(400), Nanos(1_000));
        assert!(clock.stalled(Nanos(999)));
        assert_eq!(clock.drive_at(Nanos(500)), Nanos(400));
        assert_eq!(clock.drive_at(Nanos(1_010)), Nanos(440));
        assert_eq!(clock.wall_at(Nanos(440)), Nanos(1_010));
        clock.advance(Nanos(1_010), Nanos(5_000));
        assert_eq!(clock.drive_at(Nanos(1_011)), Nanos(5_004));
        clock.stall(Nanos(5_004), Nanos(9_000));
        clock.resume(Nanos(2_000));
        assert!(!clock.stalled(Nanos(2_000)));
        assert_eq!(clock.drive_at(Nanos(2_001)), Nanos(5_008));
    }

    #[test]
    fn a_wake_up_is_never_before_its_drive_time() {
        for speed in [0.3, 1.0, 3.0, 7.7] {
            let clock = Clock::new(speed);
            for drive in (0..1_000_000_007).step_by(99_999_989) {
                let wall = clock.wall_at(Nanos(drive));
                assert!(clock.drive_at(wall) >= Nanos(drive), "{speed} {drive}");
            }
        }
    }
}
