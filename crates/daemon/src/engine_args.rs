//! The engine's options that `daemon`, `run`, `watch` and `observe` share.

use std::path::PathBuf;

use clap::Args;
use seekless_base::Fault;
use seekless_frontend::EngineOptions;
use seekless_options::{PAPERS, QueueOptions};
use seekless_policy::Mode;

use crate::settings::DaemonSettings;

/// The engine's options that `daemon`, `run`, `watch` and `observe` share.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// The options of every engine
    #[command(flatten)]
    pub engine: EngineOptions,
    /// What to do with reads: off, track (time the calls), serialise (one read at a time for each disk),
    /// prefetch (extend reads, in no order), both (serialise and prefetch; --prefetch auto and --ahead need
    /// it)
    #[arg(long, default_value = "both", value_name = "MODE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub mode: Mode,
    /// How a disk's queue is served
    #[command(flatten)]
    pub queue: QueueOptions,
}

impl EngineArgs {
    /// The settings that the options give; nothing is opened or created.
    pub(crate) fn settings(&self, socket: PathBuf) -> Result<DaemonSettings, Fault> {
        let mut settings =
            DaemonSettings { engine: self.engine.settings(self.mode)?, ..DaemonSettings::new(socket) };
        settings.preads = self.engine.policy.preads()?;
        settings.engine.single_queue = self.engine.policy.single_queue()?;
        self.queue.apply(&mut settings.engine.policy);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use clap::Parser;
    use seekless_options::Given;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        engine: Given<EngineArgs>,
    }

    fn parsed(words: &[impl AsRef<OsStr>]) -> Given<EngineArgs> {
        let words = std::iter::once(OsStr::new("x")).chain(words.iter().map(AsRef::as_ref));
        Words::try_parse_from(words).unwrap().engine
    }

    fn settings(words: &[impl AsRef<OsStr>]) -> Result<DaemonSettings, Fault> {
        parsed(words).options.settings("/tmp/x.sock".into())
    }

    #[test]
    fn the_words_for_another_daemon_mean_the_same() {
        for words in [
            &["--prefetch", "auto", "--parameter", "start-size=3MiB,adjust-interval=7.5", "--scale", "0.45"]
                [..],
            &["--prefetch", "competitive", "--parameter", "slow-start=true", "--ahead", "off"],
            &["--mode", "serialise", "--bitrate", "419000", "--budget", "1GiB", "--parameter=in-flight=2"],
            &["--preset", "libception", "--parameter=single-queue=true,answer-late=true", "--queue=7"],
            &["--mode", "prefetch", "--parameter", "preads=true"],
            &["--share", "0.25"],
            &["--quiet", "--writers", "off", "--longest-wait", "2s", "--stalled", "9"],
        ] {
            let (a, b) = (settings(words).unwrap(), settings(&parsed(words).words).unwrap());
            assert_eq!((a.engine.policy, a.preads), (b.engine.policy, b.preads));
        }
    }

    #[test]
    fn paths_need_not_be_text() {
        let tree = PathBuf::from(OsStr::from_bytes(b"/srv/\xff"));
        let log = tree.join("log");
        let words = ["--keep-metadata".as_ref(), tree.as_os_str(), "--decisions".as_ref(), log.as_os_str()];
        let again = parsed(&parsed(&words).words).options.engine;
        assert_eq!((again.keep_metadata, again.decisions), (vec![tree], Some(log)));
    }

    #[test]
    fn an_option_after_these_is_under_no_heading_of_theirs() {
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            engine: EngineArgs,
            /// An option of the command itself.
            #[arg(long)]
            own: bool,
        }
        let help = <Command as clap::CommandFactory>::command().render_help().to_string();
        assert!(!help.contains(PAPERS) && help.contains("--own"), "{help}");
    }

    #[test]
    fn an_automatic_size_needs_every_read() {
        let fault = settings(&["--prefetch", "auto", "--mode", "serialise"]).map(|_| ()).unwrap_err();
        assert!(fault.message.contains("--mode both"), "{}", fault.message);
    }
}
