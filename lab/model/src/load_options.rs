//! A library of files and its readers: options of the commands that load one, or simulate it.

use clap::Args;
use seekless_base::{Bytes, share};

use crate::workload::catalogue::{CatalogueSpec, Content};
use crate::workload::closed::Pick;
use crate::workload::handler::Handler;

/// Which library is served. The same options always give the same library.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Library")]
pub struct LibraryOptions {
    /// Number of videos [default: as many as fill --library, or 20000]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub videos: Option<u32>,
    /// Size of the whole library, such as 7.4GB; simulated, of the library on each disk
    #[arg(long, value_name = "SIZE")]
    pub library: Option<Bytes>,
    /// Make every file this large instead of drawing durations
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub file_size: Option<Bytes>,
    /// Kind of files: videos, clips, index or mirror
    #[arg(long, value_name = "KIND", default_value = "videos", hide_short_help = true)]
    pub content: Content,
    /// Share of HD (2095 kb/s) videos, 0 to 1; the rest is SD (419 kb/s)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, hide_short_help = true, hide_long_help = true)]
    pub hd_share: f64,
    /// Zipf exponent of the popularity
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.8, hide_short_help = true)]
    pub zipf: f64,
    /// Seed of the library (not of the requests)
    #[arg(long, value_name = "SEED", default_value_t = 1, hide_short_help = true, hide_long_help = true)]
    pub catalogue_seed: u64,
}

impl LibraryOptions {
    /// The specification that the options describe.
    pub fn spec(&self) -> CatalogueSpec {
        CatalogueSpec {
            videos: self.videos,
            size: self.library,
            file_size: self.file_size,
            content: self.content,
            hd_share: self.hd_share,
            zipf: self.zipf,
            seed: self.catalogue_seed,
        }
    }
}

/// Clients in a closed loop: each requests the next range when it has the last.
#[derive(Args, Clone, Debug)]
pub struct ClosedOptions {
    /// Number of clients; simulated, on each disk
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,
    /// Bytes in one request
    #[arg(long, value_name = "SIZE", default_value = "512KiB")]
    pub range: Bytes,
    /// How a client chooses its next file: uniform (all equally likely) or zipf (by popularity)
    #[arg(long, value_name = "HOW", default_value_t = Pick::Uniform, hide_short_help = true)]
    pub pick: Pick,
    /// Connections of each client, which ask for its ranges out of order
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64), hide_short_help = true)]
    pub connections: u32,
    /// Ask for what a request handler reads, block by block: index-search, files-part-think such as
    /// one-whole-0, two-rand-0, four-64kb-0, piece-2mib-100 (a peer of a torrent), needle-any-0 (a store of
    /// needles) or member-any-0 (an archive)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["range", "pick", "connections"], hide_short_help = true)]
    pub handler: Option<Handler>,
}

/// When a rate of sessions holds.
#[derive(Args, Clone, Copy, Debug)]
pub struct HoldsOption {
    /// Search: share of sessions that may fail (Libception: 0.3%; the prefetch sizing paper: 0)
    #[arg(long, value_name = "SHARE", default_value = "0.3%", value_parser = share, hide_short_help = true)]
    pub max_failed: f64,
}

/// Which drive is modelled.
#[derive(Args, Clone, Debug)]
pub struct DriveOption {
    /// Model of the drive (`seekless-lab vdisk drives` lists them); with `sim trace run` also `none`: reads
    /// below the caches take no time [default: wd-red-1tb; for what a paper states, the paper's]
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,
}

impl DriveOption {
    /// What was given, else `usual`.
    pub fn name<'a>(&'a self, usual: &'a str) -> &'a str {
        self.drive.as_deref().unwrap_or(usual)
    }
}

/// What is done with a malformed line of a trace or a log.
#[derive(Args, Clone, Copy, Debug)]
pub struct LenientOption {
    /// Skip and count malformed lines instead of stopping
    #[arg(long)]
    pub lenient: bool,
}

/// Where chance begins.
#[derive(Args, Clone, Copy, Debug)]
pub struct SeedOption {
    /// Seed of what is drawn at random; the same seed gives the same result
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}
