//! Which way in suits: observe, preload, watch, or tuning the kernel alone.
//!
//! Observing is the first step wherever the kernel has it: nothing is restarted and no program waits, so it
//! can be tried on a server that runs. Its gain is less than that of the others, because the first read of a
//! stream stays a miss. What follows is the way that gains most.
//!
//! The shim costs least and serves best, but must be in front of a program when it starts and sees only calls
//! made through the C library. Watching needs root and Linux 6.14, and no word of the program. Where neither
//! is to be had, the kernel's own settings give what they can.

use serde::Serialize;

use seekless_kernel::cacheevents::CacheEvents;
use seekless_kernel::fanotify::{Group, Unavailable};
use seekless_kernel::tracepoint::TraceError;

/// What to use, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Recommendation {
    /// What to try before, with nothing restarted; empty where there is nothing to do, or the kernel has not
    /// got it.
    pub(crate) first: String,
    /// `shim`, `watch`, `observe`, `tune`, or `none` when all is well.
    pub(crate) way: &'static str,
    /// What to type.
    pub(crate) command: String,
    /// Why this one.
    pub(crate) why: String,
}

/// What can be done here and now; if not, why.
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
                Err("this kernel tells of no reads (Linux 6.11 with tracing does)")
            }
            Err(TraceError::Other(..)) => Err("the kernel's tracepoints cannot be read"),
        };
        Doors { watch: watchable(), observe }
    }

    fn first(&self) -> String {
        self.observe.map_or(String::new(), |()| OBSERVE.into())
    }
}

const OBSERVE: &str = "seekless observe DIR ...";

fn watchable() -> Result<(), &'static str> {
    match Group::new() {
        Ok(_) => Ok(()),
        Err(Unavailable::NotPermitted) => Err("watching needs root"),
        Err(Unavailable::NotSupported) => Err("this kernel has no pre-content events (Linux 6.14 has)"),
        Err(Unavailable::Other(_)) => Err("the kernel refuses to announce reads"),
    }
}

/// What matters of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// The shim is in front of its reads.
    pub(super) hooked: bool,
    /// The shim can be.
    pub(super) preloadable: bool,
    /// Its reads go through calls the shim sees.
    pub(super) seen: bool,
    /// It sends whole files by one call, of which `watch` hears the beginning, and `observe` every page.
    pub(super) long_calls: bool,
}

/// For a process.
pub(super) fn for_process(process: Process, doors: Doors) -> Recommendation {
    let Process { hooked, preloadable, seen, long_calls } = process;
    if hooked && seen {
        return none("it is hooked and reads through calls the shim sees");
    }
    let first = doors.first();
    if preloadable && seen {
        let why = "it can be preloaded, which costs least and gains most".into();
        return Recommendation { first, way: "shim", command: "seekless run -- CMD ...".into(), why };
    }
    let cannot =
        if seen { "nothing can be preloaded into it" } else { "part of its reads pass by a preload" };
    match (doors.watch, doors.observe) {
        (Ok(()), Ok(())) if long_calls => Recommendation {
            first: String::new(),
            way: "observe",
            command: OBSERVE.into(),
            why: format!("{cannot}, and of a whole file sent by one call `watch` hears the beginning only"),
        },
        (Ok(()), _) => Recommendation {
            first,
            way: "watch",
            command: "seekless watch DIR ...".into(),
            why: format!("{cannot}, and this kernel announces every read"),
        },
        (Err(not), Ok(())) => Recommendation {
            first: String::new(),
            way: "observe",
            command: OBSERVE.into(),
            why: format!("{cannot}, and {not}, but this kernel tells of every read after it"),
        },
        (Err(not), Err(_)) => Recommendation {
            first,
            way: "tune",
            command: "seekless disk tune --apply DEV".into(),
            why: format!("{cannot}, and {not}: the kernel's own settings are what is left"),
        },
    }
}

/// For the machine, whatever runs on it; `heads`: a disk seeks.
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
            why: "it serves whatever reads there, running already or not; a server of your own is better preloaded \
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
            for_process(Process { hooked, preloadable, seen, long_calls: false }, doors).way
        };
        assert_eq!(way(true, true, true, all), "none");
        assert_eq!(way(false, true, true, all), "shim");
        assert_eq!(way(false, false, true, all), "watch", "Go, static, set-uid");
        assert_eq!(way(true, true, false, all), "watch", "io_uring, maps");
        assert_eq!(way(false, false, true, doors(Err("no"), Ok(()))), "observe", "a kernel before 6.14");
        assert_eq!(way(false, false, true, neither), "tune");
        let long = |preloadable, doors| {
            for_process(Process { hooked: false, preloadable, seen: true, long_calls: true }, doors).way
        };
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
