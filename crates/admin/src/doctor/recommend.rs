//! Recommends a door: observe, preload, watch, or only tuning the kernel.
//!
//! Observing is the first step wherever the kernel supports it: nothing is restarted and no program waits, so
//! it can be tried on a running server. It gains less than the other doors, because the first read of a
//! stream stays a miss. Then follows the door that gains most.
//!
//! The shim costs least and serves best. But it must be loaded when the program starts, and sees only calls
//! through the C library. Watching needs root and Linux 6.14, and no cooperation of the program. If neither
//! is possible, the kernel's own settings help a little.

use serde::Serialize;

use seekless_kernel::cacheevents::CacheEvents;
use seekless_kernel::fanotify::{Group, Unavailable};
use seekless_kernel::tracepoint::TraceError;

/// The recommended door, and how to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Recommendation {
    /// What to try first, without a restart; empty if there is nothing to do, or the kernel does not support
    /// it.
    pub(crate) first: String,
    /// `shim`, `watch`, `observe`, `tune`, or `none` when all is well.
    pub(crate) way: &'static str,
    pub(crate) command: String,
    pub(crate) why: String,
}

/// Whether each door works here; if not, why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doors {
    pub(crate) watch: Result<(), &'static str>,
    pub(crate) observe: Result<(), &'static str>,
}

impl Doors {
    pub(crate) fn here() -> Doors {
        let observe = match CacheEvents::probe() {
            Ok(()) => Ok(()),
            Err(TraceError::NotPermitted(_)) => Err("observing needs root"),
            Err(TraceError::Missing(_)) => {
                Err("this kernel reports no reads (it takes Linux 6.11 with tracing, or 5.10 with BTF)")
            }
            Err(TraceError::Other(..)) => Err("the kernel's tracepoints cannot be read"),
        };
        Doors { watch: watchable(), observe }
    }

    /// Each door's name, and `works` or what it lacks. The shim needs nothing of the kernel.
    pub(super) fn report(&self) -> [(&'static str, &'static str); 3] {
        let works = |door: Result<(), &'static str>| door.err().unwrap_or(WORKS);
        [("shim", WORKS), ("observe", works(self.observe)), ("watch", works(self.watch))]
    }

    fn first(&self) -> String {
        self.observe.map_or(String::new(), |()| OBSERVE.into())
    }
}

/// Said of a door that the kernel and the caller's rights allow.
pub(super) const WORKS: &str = "works";

const OBSERVE: &str = "seekless observe DIR ...";

fn watchable() -> Result<(), &'static str> {
    match Group::probe() {
        Ok(()) => Ok(()),
        Err(Unavailable::NotPermitted) => Err("watching needs root"),
        Err(Unavailable::NotSupported) => Err("this kernel has no pre-content events (it takes Linux 6.14)"),
        Err(Unavailable::Other(_)) => Err("the kernel refuses to announce reads"),
    }
}

/// The facts about a process that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// Whether the shim is loaded.
    pub(super) hooked: bool,
    /// Whether the shim can be loaded.
    pub(super) preloadable: bool,
    /// Whether its reads go through calls that the shim sees.
    pub(super) seen: bool,
    /// What `watch` hears only the beginning of, and `observe` every page: whole files sent by one call, or
    /// mapped files.
    pub(super) half_heard: Option<&'static str>,
}

pub(super) fn for_process(process: Process, doors: Doors) -> Recommendation {
    let Process { hooked, preloadable, seen, half_heard } = process;
    if hooked && seen {
        return none("it is hooked and reads through calls the shim sees");
    }
    let first = doors.first();
    if preloadable && seen {
        let why = "it can be preloaded, which costs least and gains most".into();
        return Recommendation { first, way: "shim", command: "seekless run -- CMD ...".into(), why };
    }
    let cannot =
        if seen { "nothing can be preloaded into it" } else { "a preload does not see part of its reads" };
    match (doors.watch, doors.observe, half_heard) {
        (Ok(()), Ok(()), Some(what)) => Recommendation {
            first: String::new(),
            way: "observe",
            command: OBSERVE.into(),
            why: format!("{cannot}, and of {what} `watch` hears only the beginning"),
        },
        (Ok(()), ..) => Recommendation {
            first,
            way: "watch",
            command: "seekless watch DIR ...".into(),
            why: format!("{cannot}, and this kernel announces every read"),
        },
        (Err(not), Ok(()), _) => Recommendation {
            first: String::new(),
            way: "observe",
            command: OBSERVE.into(),
            why: format!("{cannot}, and {not}, but this kernel reports every read"),
        },
        (Err(not), Err(_), _) => Recommendation {
            first,
            way: "tune",
            command: "seekless disk tune --apply DEV".into(),
            why: format!("{cannot}, and {not}: only the kernel's own settings are left"),
        },
    }
}

/// For the machine, whatever runs on it. `heads`: whether a disk seeks.
pub(super) fn for_machine(heads: bool, daemon: bool, doors: Doors) -> Recommendation {
    if !heads {
        return none("no disk here seeks");
    }
    if daemon {
        return none("a daemon answers; `seekless doctor --pid PID` says whether a server uses it");
    }
    let first = doors.first();
    match doors.watch {
        Ok(()) => Recommendation {
            first,
            way: "watch",
            command: "seekless watch DIR ...".into(),
            why: "it serves every program that reads there, also one that runs already; a server of your own is better preloaded \
                  (`seekless run -- CMD ...`)"
                .into(),
        },
        Err(not) => Recommendation {
            first,
            way: "shim",
            command: "seekless run -- CMD ...".into(),
            why: format!("{not}; for what cannot be preloaded there is `seekless disk tune --apply DEV`"),
        },
    }
}

pub(super) fn none(why: &str) -> Recommendation {
    Recommendation { first: String::new(), way: "none", command: String::new(), why: why.into() }
}

impl Recommendation {
    pub(super) fn describe(&self) -> String {
        let first = match self.first.as_str() {
            "" => String::new(),
            command => format!("=> first {command}: nothing is restarted, and no program waits for it\n"),
        };
        match self.way {
            "none" => format!("=> nothing to do: {}\n", self.why),
            _ if first.is_empty() => format!("=> {}: {}\n", self.command, self.why),
            _ => format!("{first}=> then {}: {}\n", self.command, self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_its_way() {
        let doors = |watch, observe| Doors { watch, observe };
        let (all, neither) = (doors(Ok(()), Ok(())), doors(Err("no"), Err("no")));
        let way = |hooked, preloadable, seen, doors| {
            for_process(Process { hooked, preloadable, seen, half_heard: None }, doors).way
        };
        assert_eq!(way(true, true, true, all), "none");
        assert_eq!(way(false, true, true, all), "shim");
        assert_eq!(way(false, false, true, all), "watch", "Go, static, set-uid");
        assert_eq!(way(true, true, false, all), "watch", "io_uring");
        assert_eq!(way(false, false, true, doors(Err("no"), Ok(()))), "observe", "a kernel before 6.14");
        assert_eq!(way(false, false, true, neither), "tune");
        let long = |preloadable, doors| {
            let half_heard = Some("a whole file sent by one call");
            for_process(Process { hooked: false, preloadable, seen: true, half_heard }, doors).way
        };
        let mapped =
            Process { hooked: true, preloadable: true, seen: false, half_heard: Some("a mapped file") };
        assert_eq!(for_process(mapped, all).way, "observe", "faults make no call");
        assert_eq!(long(true, all), "shim", "it sends in parts");
        assert_eq!(long(false, all), "observe");
        assert_eq!(long(false, doors(Ok(()), Err("no"))), "watch");
        assert_eq!(for_machine(false, false, all).way, "none");
        assert_eq!(for_machine(true, false, all).way, "watch");
        assert_eq!(for_machine(true, false, neither).way, "shim");
        assert_eq!(for_machine(true, true, neither).way, "none");
    }

    #[test]
    fn the_first_step_restarts_nothing() {
        let doors = Doors { watch: Ok(()), observe: Ok(()) };
        let text = for_machine(true, false, doors).describe();
        assert!(text.starts_with("=> first seekless observe DIR") && text.contains("=> then seekless watch"));
        assert!(!for_machine(false, false, doors).describe().contains("observe"));
        let without = Doors { observe: Err("no"), ..doors };
        assert!(!for_machine(true, false, without).describe().contains("observe"));
    }
}
