//! Several drives behind one device: options of the commands that model disks.

use clap::Args;
use seekless_base::{Bytes, Fault};

use crate::drive::set::{DEFAULT_CHUNK, SetKind, SetSpec};

/// A set of modelled drives.
#[derive(Args, Clone, Debug, Default)]
pub struct SetOptions {
    /// Combine several such drives into one device: raid0, raid1, raid10 (two near copies), raid5, raid6
    /// (left-symmetric) or linear
    #[arg(long, value_name = "KIND")]
    pub set: Option<SetKind>,
    /// Number of drives in the set
    #[arg(long, value_name = "N")]
    pub members: Option<u32>,
    /// Bytes that stay together on one member of a striped set [default: 512KiB, as md]
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<Bytes>,
    /// Sets of heads in each drive, each over its share of the addresses: 1 or 2
    #[arg(long, value_name = "N", default_value_t = 1, hide_long_help = true)]
    pub actuators: u32,
}

impl SetOptions {
    /// The set that the options describe; without options one ordinary drive.
    ///
    /// # Errors
    /// `Usage`: a number is out of range, `--members` or `--chunk` stands without `--set`, or `--set` without
    /// `--members`.
    pub fn spec(&self) -> Result<SetSpec, Fault> {
        let spec = match (self.set, self.members) {
            (Some(kind), Some(members)) => {
                let chunk = self.chunk.unwrap_or(DEFAULT_CHUNK);
                SetSpec { kind, members, chunk, actuators: self.actuators }
            }
            (Some(kind), None) => {
                let least = kind.members_min();
                return Err(Fault::usage(format!(
                    "--members is missing: say how many drives, {least} or more, make the {kind}"
                )));
            }
            (None, Some(_)) => {
                return Err(Fault::usage("--members goes with --set, as --set raid0 --members 4"));
            }
            (None, None) if self.chunk.is_some() => {
                return Err(Fault::usage(
                    "--chunk goes with --set, as --set raid0 --members 4 --chunk 512KiB",
                ));
            }
            (None, None) => SetSpec { actuators: self.actuators, ..SetSpec::SINGLE },
        };
        match spec.check() {
            Ok(()) => Ok(spec),
            Err(why) => Err(Fault::usage(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        set: SetOptions,
    }

    fn spec(words: &str) -> Result<SetSpec, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        Words::try_parse_from(words).map_err(|e| e.to_string())?.set.spec().map_err(|fault| {
            assert_eq!(fault.exit, Exit::Usage);
            fault.message
        })
    }

    #[test]
    fn a_set_is_what_was_ordered_and_nothing_is_one_drive() {
        assert_eq!(spec(""), Ok(SetSpec::SINGLE));
        assert_eq!(spec("--actuators 2").map(|s| (s.members, s.spindles())), Ok((1, 2)));
        let raid = SetSpec { kind: SetKind::Raid6, members: 6, chunk: Bytes::kib(64), actuators: 1 };
        assert_eq!(spec("--set raid6 --members 6 --chunk 64KiB"), Ok(raid));
        assert_eq!(spec("--set raid0 --members 4").map(|s| s.chunk), Ok(DEFAULT_CHUNK));
    }

    #[test]
    fn what_makes_no_set_is_refused_with_the_mend() {
        for (words, said) in [
            ("--set raid7 --members 4", "raid10"),
            ("--set raid0", "--members is missing"),
            ("--members 4", "--set raid0"),
            ("--chunk 64KiB", "--set raid0"),
            ("--set raid5 --members 2", "give 3 to 64"),
            ("--set raid0 --members 4 --chunk 5KiB", "multiple of"),
            ("--actuators 3", "1 or 2"),
            ("--set raid0 --members x", "--members"),
        ] {
            let message = spec(words).unwrap_err();
            assert!(message.contains(said), "{words}: {message}");
        }
    }
}
