//! Which of the three ways in suits: preload, watch, or tuning the kernel alone.
//!
//! The shim costs least and serves best, but must be in front of a program when it starts and sees only calls made through the
//! C library. Watching needs root and Linux 6.14, and no word of the program. Where neither is to be had, the kernel's own
//! settings give what they can.

use serde::Serialize;

use seekless_kernel::fanotify::{Group, Unavailable};

/// What to use, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Recommendation {
    /// `shim`, `watch`, `tune`, or `none` when all is well.
    pub(crate) way: &'static str,
    /// What to type.
    pub(crate) command: String,
    /// Why this one.
    pub(crate) why: String,
}

/// Whether `seekless watch` would work here and now; if not, why.
pub(crate) fn watchable() -> Result<(), &'static str> {
    match Group::new() {
        Ok(_) => Ok(()),
        Err(Unavailable::NotPermitted) => Err("watching needs root"),
        Err(Unavailable::NotSupported) => Err("this kernel has no pre-content events (Linux 6.14 has)"),
        Err(Unavailable::Other(_)) => Err("the kernel refuses to announce reads"),
    }
}

/// For a process: `hooked` by the shim; `preloadable` if it can be; `seen` if its reads go through calls the shim sees.
pub(super) fn for_process(
    hooked: bool,
    preloadable: bool,
    seen: bool,
    watchable: Result<(), &str>,
) -> Recommendation {
    if hooked && seen {
        let why = "it is hooked and reads through calls the shim sees".into();
        return Recommendation { way: "none", command: String::new(), why };
    }
    if preloadable && seen {
        let why = "it can be preloaded, which costs least".into();
        return Recommendation { way: "shim", command: "seekless run -- CMD ...".into(), why };
    }
    let cannot =
        if seen { "nothing can be preloaded into it" } else { "part of its reads pass by a preload" };
    match watchable {
        Ok(()) => Recommendation {
            way: "watch",
            command: "seekless watch DIR ...".into(),
            why: format!("{cannot}, and this kernel announces every read"),
        },
        Err(not) => Recommendation {
            way: "tune",
            command: "seekless disk tune --apply DEV".into(),
            why: format!("{cannot}, and {not}: the kernel's own settings are what is left"),
        },
    }
}

/// For the machine, whatever runs on it; `heads`: a disk seeks.
pub(super) fn for_machine(heads: bool, daemon: bool, watchable: Result<(), &str>) -> Recommendation {
    let none = |why: &str| Recommendation { way: "none", command: String::new(), why: why.into() };
    if !heads {
        return none("no disk here seeks");
    }
    match watchable {
        _ if daemon => none("a daemon answers; `seekless doctor --pid PID` says whether a server uses it"),
        Ok(()) => Recommendation {
            way: "watch",
            command: "seekless watch DIR ...".into(),
            why: "it serves whatever reads there, running already or not; a server of your own is better preloaded \
                  (`seekless run -- CMD ...`)"
                .into(),
        },
        Err(not) => Recommendation {
            way: "shim",
            command: "seekless run -- CMD ...".into(),
            why: format!("{not}; for what cannot be preloaded there is `seekless disk tune --apply DEV`"),
        },
    }
}

impl Recommendation {
    pub(super) fn describe(&self) -> String {
        match self.way {
            "none" => format!("=> nothing to do: {}\n", self.why),
            _ => format!("=> {}: {}\n", self.command, self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_its_way() {
        let way = |hooked, preloadable, seen, watch| for_process(hooked, preloadable, seen, watch).way;
        assert_eq!(way(true, true, true, Ok(())), "none");
        assert_eq!(way(false, true, true, Ok(())), "shim");
        assert_eq!(way(false, false, true, Ok(())), "watch", "Go, static, set-uid");
        assert_eq!(way(true, true, false, Ok(())), "watch", "io_uring, maps");
        assert_eq!(way(false, false, true, Err("no")), "tune");
        assert_eq!(for_machine(false, false, Ok(())).way, "none");
        assert_eq!(for_machine(true, false, Ok(())).way, "watch");
        assert_eq!(for_machine(true, false, Err("no")).way, "shim");
        assert_eq!(for_machine(true, true, Err("no")).way, "none");
    }
}
