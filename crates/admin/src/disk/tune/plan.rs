//! Which settings to change and why, from a disk's profile. Pure.
//!
//! The model: sequential readers take turns. Each visit of the disk to a reader costs a seek (as long as the
//! gaps between the requests that are sorted together), half a turn, the overhead of each command, and the
//! transfer of what is read ahead. Throughput is what is read ahead over that time. The model leaves out
//! evictions from the page cache and the pauses of readers, which disturb the order; measured gains have been
//! a quarter lower than predicted ones.

use seekless_base::Nanos;
use seekless_kernel::queue::{QueueSettings, Setting};
use seekless_policy::profile::DiskProfile;
use serde::Serialize;

/// Bounds of the recommended read-ahead, KiB. Below them command overhead dominates, above them memory.
const READ_AHEAD_KB: (u64, u64) = (256, 16_384);
/// Commands that a drive's own queue should hold: enough that it is never idle between two, and can choose by
/// rotational position.
const DEPTH_MIN: u64 = 4;
/// Longest queue of NCQ.
const DEPTH: u64 = 32;

/// The advice about one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// The sysfs file's name.
    pub(crate) setting: &'static str,
    /// Its present value, if the device has this setting.
    pub(crate) now: Option<String>,
    /// Its recommended value; `None` if it should stay.
    pub(crate) wanted: Option<String>,
    /// The reason.
    pub(crate) why: String,
    /// Throughput by the model once this setting and all before it are applied.
    pub(crate) expected_mb_per_s: f64,
}

impl Advice {
    /// The change to make.
    pub(crate) fn change(&self) -> Option<(Setting, String)> {
        Some((Setting::by_name(self.setting)?, self.wanted.clone()?))
    }

    /// The value it should have, changed or not.
    pub(crate) fn value(&self) -> Option<(Setting, String)> {
        Some((Setting::by_name(self.setting)?, self.wanted.clone().or_else(|| self.now.clone())?))
    }
}

/// All advice for a disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TunePlan {
    /// Sequential readers at once.
    pub(crate) streams: u32,
    /// Throughput by the model with the present settings.
    pub(crate) now_mb_per_s: f64,
    /// Throughput by the model with the recommended settings.
    pub(crate) tuned_mb_per_s: f64,
    /// Memory that the readers' read-ahead then takes: a window in use and the next one.
    pub(crate) memory_bytes: u64,
    /// In the order in which they must be set.
    pub(crate) settings: Vec<Advice>,
}

/// The settings that the model needs.
#[derive(Clone, Copy, Debug)]
struct Set {
    read_ahead_kb: u64,
    max_sectors_kb: u64,
    /// Requests sorted together.
    sorted: u64,
}

/// Advice for a disk with this profile and these settings, and this many readers.
pub(crate) fn plan(profile: &DiskProfile, now: &QueueSettings, streams: u32) -> TunePlan {
    let sorts = |scheduler: Option<&str>| !matches!(scheduler, None | Some("none"));
    let sorted = |scheduler: Option<&str>, depth: u64, requests: u64| {
        // Without a scheduler only the drive sorts requests, and only those in its queue.
        let by_scheduler = if sorts(scheduler) { requests } else { 1 };
        by_scheduler.max(depth).min(u64::from(streams)).max(1)
    };
    let (depth_now, requests) = (now.queue_depth.unwrap_or(1), now.nr_requests.unwrap_or(64));
    let mut set = Set {
        read_ahead_kb: now.read_ahead_kb.unwrap_or(128),
        max_sectors_kb: now.max_sectors_kb.unwrap_or(512),
        sorted: sorted(now.scheduler.as_deref(), depth_now, requests),
    };
    let now_mb_per_s = throughput(profile, set);
    let mut settings = Vec::new();

    // Scheduler.
    let offered = |name: &str| now.schedulers.iter().any(|s| s == name);
    let scheduler = now.scheduler.clone();
    let (wanted, why) = match scheduler.as_deref() {
        Some("mq-deadline") => {
            (None, "serves waiting reads by rising address, with a bound on their age".to_string())
        }
        _ if !now.rotational => (None, "the disk does not turn: order gains nothing".to_string()),
        _ if offered("mq-deadline") => (
            Some("mq-deadline".to_string()),
            format!(
                "serves waiting reads by rising address: a mean seek of {} over {streams} waiting readers instead of {} \
                 between independent places",
                profile.mean_seek_among(sorted(Some("mq-deadline"), depth_now, requests) as u32),
                profile.mean_seek(),
            ),
        ),
        _ => (None, "no scheduler on offer here serves by address".to_string()),
    };
    let chosen = wanted.clone().or(scheduler.clone());
    set.sorted = sorted(chosen.as_deref(), depth_now, requests);
    let expected = throughput(profile, set);
    settings.push(Advice { setting: "scheduler", now: scheduler, wanted, why, expected_mb_per_s: expected });

    // The drive's own queue.
    let (wanted, why) = match now.queue_depth {
        None => (None, "this device has no queue of its own to set".to_string()),
        Some(depth) if depth >= DEPTH_MIN => {
            (None, "enough for the drive to choose the read that comes round first".to_string())
        }
        Some(_) if !now.rotational => (None, "left alone".to_string()),
        Some(_) => (
            Some(DEPTH.to_string()),
            format!(
                "the drive can then choose the read that comes round first; half a turn is {}",
                profile.half_turn()
            ),
        ),
    };
    let depth = if wanted.is_some() { DEPTH } else { depth_now };
    set.sorted = sorted(chosen.as_deref(), depth, requests);
    let (depth_now, expected) = (now.queue_depth.map(|n| n.to_string()), throughput(profile, set));
    settings.push(Advice {
        setting: "queue_depth",
        now: depth_now,
        wanted,
        why,
        expected_mb_per_s: expected,
    });

    // Read-ahead is decided before the command size and set after it.
    let depth_kb = competitive_kb(profile);
    let wanted_kb = nearest_power(depth_kb).clamp(READ_AHEAD_KB.0, READ_AHEAD_KB.1);
    let keep = !now.rotational || (wanted_kb..=wanted_kb * 2).contains(&set.read_ahead_kb);
    let ahead_kb = if keep { set.read_ahead_kb } else { wanted_kb };
    let ahead_why = if now.rotational {
        let shorter = if ahead_kb < set.read_ahead_kb {
            "; more is faster for readers that take all of it, and slower for those that stop or jump"
        } else {
            ""
        };
        format!(
            "the disk transfers {depth_kb} KiB in a mean seek and half a turn; with reads of that length it is never \
             slower than half of the best possible, whatever the readers want{shorter}"
        )
    } else {
        "the disk does not turn: its read-ahead is left alone".to_string()
    };

    // Command size.
    let most = now.max_hw_sectors_kb.unwrap_or(set.max_sectors_kb);
    let command_kb = ahead_kb.min(most);
    let (wanted, why) = if !now.rotational || set.max_sectors_kb >= command_kb {
        (None, "a whole read-ahead goes in one command, or in the largest the device takes".to_string())
    } else {
        let why = format!(
            "a read-ahead of {ahead_kb} KiB goes in {} commands instead of {}: {} less overhead, and nothing gets in \
             between",
            ahead_kb.div_ceil(command_kb),
            ahead_kb.div_ceil(set.max_sectors_kb.max(1)),
            Nanos(
                profile.overhead.0
                    * (ahead_kb.div_ceil(set.max_sectors_kb.max(1)) - ahead_kb.div_ceil(command_kb))
            ),
        );
        (Some(command_kb.to_string()), why)
    };
    if wanted.is_some() {
        set.max_sectors_kb = command_kb;
    }
    let (value, expected) = (now.max_sectors_kb.map(|n| n.to_string()), throughput(profile, set));
    settings.push(Advice { setting: "max_sectors_kb", now: value, wanted, why, expected_mb_per_s: expected });

    set.read_ahead_kb = ahead_kb;
    let tuned = throughput(profile, set);
    settings.push(Advice {
        setting: "read_ahead_kb",
        now: now.read_ahead_kb.map(|n| n.to_string()),
        wanted: (!keep).then(|| ahead_kb.to_string()),
        why: ahead_why,
        expected_mb_per_s: tuned,
    });
    let memory_bytes = u64::from(streams) * ahead_kb * 1024 * 2;
    TunePlan { streams, now_mb_per_s, tuned_mb_per_s: tuned, memory_bytes, settings }
}

/// \[C\]'s depth for seeks between independent places at the mean rate, KiB.
fn competitive_kb(profile: &DiskProfile) -> u64 {
    profile.mean_depth().0 / 1024
}

/// The power of two nearest by ratio.
fn nearest_power(n: u64) -> u64 {
    let below = 1u64 << n.max(1).ilog2();
    // Above the geometric mean of the two powers.
    if (n as f64) > below as f64 * std::f64::consts::SQRT_2 { below * 2 } else { below }
}

/// MB/s of sequential readers together.
fn throughput(profile: &DiskProfile, set: Set) -> f64 {
    let bytes = set.read_ahead_kb.max(4) as f64 * 1024.0;
    let commands = set.read_ahead_kb.div_ceil(set.max_sectors_kb.max(1)).max(1);
    let seek = profile.mean_seek_among(u32::try_from(set.sorted).unwrap_or(u32::MAX));
    let time = seek.as_secs_f64()
        + profile.half_turn().as_secs_f64()
        + commands as f64 * profile.overhead.as_secs_f64()
        + bytes / profile.mean_rate();
    bytes / time / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> QueueSettings {
        QueueSettings {
            read_ahead_kb: Some(128),
            max_sectors_kb: Some(1280),
            max_hw_sectors_kb: Some(32_767),
            nr_requests: Some(64),
            scheduler: Some("none".into()),
            schedulers: vec!["none".into(), "mq-deadline".into()],
            queue_depth: Some(32),
            rotational: true,
        }
    }

    fn wanted(plan: &TunePlan) -> Vec<Option<&str>> {
        plan.settings.iter().map(|a| a.wanted.as_deref()).collect()
    }

    #[test]
    fn a_shipped_disk_is_tuned() {
        let profile = DiskProfile::assumed(1 << 31);
        let plan = plan(&profile, &shipped(), 100);
        assert_eq!(wanted(&plan), [Some("mq-deadline"), None, Some("2048"), Some("2048")]);
        assert!(plan.tuned_mb_per_s > 3.0 * plan.now_mb_per_s, "{plan:?}");
        let steps: Vec<f64> = plan.settings.iter().map(|a| a.expected_mb_per_s).collect();
        assert!(steps.is_sorted() && *steps.last().unwrap() == plan.tuned_mb_per_s, "{steps:?}");
        assert!(plan.tuned_mb_per_s < profile.mean_rate() / 1e6);
    }

    #[test]
    fn what_is_tuned_stays() {
        let profile = DiskProfile::assumed(1 << 31);
        let tuned = QueueSettings {
            read_ahead_kb: Some(2048),
            max_sectors_kb: Some(2048),
            scheduler: Some("mq-deadline".into()),
            ..shipped()
        };
        let plan = plan(&profile, &tuned, 100);
        assert_eq!(wanted(&plan), [None; 4]);
        assert_eq!(plan.now_mb_per_s, plan.tuned_mb_per_s);
    }

    #[test]
    fn solid_state_and_small_hardware_are_respected() {
        let profile = DiskProfile::assumed(1 << 31);
        let flash = QueueSettings { rotational: false, queue_depth: Some(1), ..shipped() };
        assert_eq!(wanted(&plan(&profile, &flash, 100)), [None; 4]);
        let small = QueueSettings { max_hw_sectors_kb: Some(512), max_sectors_kb: Some(512), ..shipped() };
        assert_eq!(wanted(&plan(&profile, &small, 100))[2], None);
        let bare = QueueSettings { rotational: true, read_ahead_kb: Some(128), ..QueueSettings::default() };
        assert_eq!(wanted(&plan(&profile, &bare, 1))[3], Some("2048"));
        let shallow = QueueSettings { queue_depth: Some(1), ..shipped() };
        assert_eq!(wanted(&plan(&profile, &shallow, 100))[1], Some("32"));
    }

    #[test]
    fn powers() {
        assert_eq!(
            [0, 1, 3, 540, 1400, 1500, 1_000_000].map(nearest_power),
            [1, 1, 4, 512, 1024, 2048, 1_048_576]
        );
    }
}
