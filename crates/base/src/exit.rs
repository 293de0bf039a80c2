use alloc::string::String;

/// How every `seekless` command ends. `seekless run` passes on the status of the command it ran instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and every check held.
    Ok = 0,
    /// It ran, but what was asked did not come out: a check failed, a process did not start, an input/output
    /// error.
    Failed = 1,
    /// The command line or a file was wrong: unknown name or field, bad unit, value out of range.
    Usage = 2,
    /// The system does not permit it: no root, no FUSE, no loop device, no writable cgroup.
    Permission = 3,
    /// The name, address or file is in use by something else.
    Busy = 4,
    /// Something needed is not here: no such process, device, program or kernel feature.
    Missing = 5,
    /// Interrupted by a signal (128 + SIGINT, as shells report it).
    Interrupted = 130,
}

/// An error a person reads: one line that says what, where and how to mend it, and the exit status that goes
/// with it. Library crates keep their own typed errors and turn them into this at their edge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The status the command ends with.
    pub exit: Exit,
    /// One line: what is wrong, where, how to mend it.
    pub message: String,
}

impl Fault {
    /// A fault that ends the command with `exit` after printing `message`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Fault {
        Fault { exit, message: message.into() }
    }

    /// A check did not hold, or the work could not be done.
    pub fn failed(message: impl Into<String>) -> Fault {
        Fault::new(Exit::Failed, message)
    }

    /// The command line, or a file named on it, is wrong.
    pub fn usage(message: impl Into<String>) -> Fault {
        Fault::new(Exit::Usage, message)
    }

    /// The user may not do this.
    pub fn permission(message: impl Into<String>) -> Fault {
        Fault::new(Exit::Permission, message)
    }

    /// Something that the work needs is in use.
    pub fn busy(message: impl Into<String>) -> Fault {
        Fault::new(Exit::Busy, message)
    }

    /// Something that the work needs is not there.
    pub fn missing(message: impl Into<String>) -> Fault {
        Fault::new(Exit::Missing, message)
    }
}
