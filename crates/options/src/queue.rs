//! How a disk's queue is served: options of the commands with the paper's daemon, real or simulated.

use clap::Args;
use seekless_base::Bytes;
use seekless_policy::Config;

use crate::policy::PREFETCH_MAX;
use crate::{BOUNDS, PAPERS, Preset};

/// How a disk's queue is served.
#[derive(Args, Clone, Debug)]
pub struct QueueOptions {
    /// One queue for all disks instead of one for each, as with --preset libception
    #[arg(long, help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub single_queue: bool,
    /// Most requests that wait for one disk, 1 to 65536; beyond it requests pass at once
    #[arg(
        long,
        default_value_t = 4096,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65536),
        help_heading = BOUNDS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub queue: u32,
    /// Reads in flight on one disk, 1 to 64: 1 is strictly serial; from 2 on the next read is submitted
    /// shortly before the last one ends
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64),
        help_heading = PAPERS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub in_flight: u32,
    /// With --in-flight 2 or more: submit the next read when this many bytes of the last are missing, at most
    /// 1GiB
    #[arg(long, default_value = "256KiB", value_name = "SIZE", value_parser = overlap, help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub overlap: Bytes,
    /// Answer at the end of the whole read, as the paper does and --preset libception, instead of when the
    /// requested bytes have arrived
    #[arg(long, help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub answer_late: bool,
}

/// Bytes of a read that are still missing. More than the longest read would mean nothing.
fn overlap(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: seekless_base::ParseBytesError| e.to_string())?;
    if bytes > PREFETCH_MAX { Err(format!("write at most {PREFETCH_MAX}")) } else { Ok(bytes) }
}

impl QueueOptions {
    /// Whether all disks have one queue, which the driver handles.
    pub fn is_single(&self, preset: Option<Preset>) -> bool {
        self.single_queue || preset.unwrap_or_default().values().single_queue
    }

    /// Copies them into the configuration of a disk queue.
    pub fn apply(&self, config: &mut Config, preset: Option<Preset>) {
        let answer_late = self.answer_late || preset.unwrap_or_default().values().answer_late;
        config.queue_max = self.queue as usize;
        config.reads_in_flight = self.in_flight as usize;
        config.overlap = self.overlap;
        config.answer_early = !answer_late;
    }

    /// The same options as arguments for another command.
    pub fn to_args(&self) -> Vec<String> {
        let mut words = vec![
            format!("--queue={}", self.queue),
            format!("--in-flight={}", self.in_flight),
            format!("--overlap={}", self.overlap),
        ];
        let flags = [("--single-queue", self.single_queue), ("--answer-late", self.answer_late)];
        words.extend(flags.iter().filter(|f| f.1).map(|f| f.0.to_string()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_at_most_the_longest_read() {
        assert_eq!(overlap("0"), Ok(Bytes::ZERO));
        assert_eq!(overlap("1GiB"), Ok(Bytes::gib(1)));
        for wrong in ["1025MiB", "900TiB", "x"] {
            assert!(overlap(wrong).is_err(), "{wrong}");
        }
    }
}
