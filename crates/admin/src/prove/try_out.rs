//! `seekless try DIR`: the gain of reading ahead for all programs that read under these folders, measured for
//! some minutes. Nothing is installed, restarted or preloaded, no program waits, and nothing stays.
//!
//! It runs `seekless observe` as a child, and a proof with it: blocks of time alternate in which reads are
//! only counted and in which data is read ahead.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use seekless_base::{Exit, Fault};
use seekless_frontend::advice::unavailable;
use seekless_frontend::control;
use seekless_frontend::own_daemon::OwnDaemon;
use seekless_frontend::socket::SocketOption;
use seekless_kernel::cacheevents::CacheEvents;

use super::{Leave, MeasureOptions, ProveArgs, help_more, measurable, measure, possible};

/// How long `try` takes at most, if no time is given: half of what `prove` does, whose result lasts longer.
const AT_MOST: Duration = Duration::from_secs(10 * 60);

/// Longest wait for a program that reads streams under the folders.
const TRAFFIC_MAX: Duration = Duration::from_secs(60);

/// Measure for some minutes what reading ahead gains for the programs that read under these folders. Nothing
/// is restarted, no program waits, and nothing is left behind.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("at_most", |arg| help_more(arg, " [default: 10m]")))]
pub struct TryArgs {
    /// Folders to try
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    measure: MeasureOptions,
}

/// `seekless try`.
///
/// # Errors
/// The kernel or our permissions do not allow observing; a path is not a directory; nothing is read there.
pub fn run_try(args: TryArgs) -> Result<Exit, Fault> {
    CacheEvents::probe().map_err(unavailable)?;
    for dir in &args.dirs {
        if !fs::metadata(dir).is_ok_and(|meta| meta.is_dir()) {
            return Err(Fault::missing(format!(
                "{}: no such folder; name an existing folder",
                dir.display()
            )));
        }
    }
    let mut prove = ProveArgs {
        measure: MeasureOptions { at_most: args.measure.at_most.or(Some(AT_MOST)), ..args.measure },
        wait_max: None,
        leave: Some(Leave::On),
        at: SocketOption::default(),
    };
    possible(&prove)?;
    let mut words = vec![OsString::from("observe")];
    words.extend(args.dirs.iter().map(OsString::from));
    let observer = OwnDaemon::start(words, None)?;
    wait_for_traffic(&observer)?;
    prove.at.socket = Some(observer.socket.clone());
    measure("try", &prove)
}

/// Waits for reads on a disk whose time the kernel counts.
fn wait_for_traffic(observer: &OwnDaemon) -> Result<(), Fault> {
    let until = Instant::now() + TRAFFIC_MAX;
    let mut told = false;
    loop {
        match measurable(&control::status(&observer.socket)?.1) {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < until => {
                if !told {
                    seekless_output::eprintln!(
                        "seekless try: waiting up to {} s for a program that reads",
                        TRAFFIC_MAX.as_secs()
                    );
                    told = true;
                }
                thread::sleep(Duration::from_millis(200));
            }
            Err(_) => {
                return Err(Fault::missing(format!(
                    "no program read a file in sequence on a disk with heads for {} s; try again under load",
                    TRAFFIC_MAX.as_secs()
                )));
            }
        }
    }
}
