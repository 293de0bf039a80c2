//! A second model of a hard disk, made from a data sheet alone.
//!
//! It checks what was found with the first model (`crate::drive`), and shares no code with it. A result that
//! holds on one model only was fitted to that model.
//!
//! | | `drive` | here |
//! | --- | --- | --- |
//! | geometry | zones, heads, skews, whole sectors | one spiral; the rate falls evenly to the inside |
//! | seek | a measured curve, or a fit | a root up to the average seek, then a straight line |
//! | rotation | waits for the first sector | reads from where the heads land on a track (zero latency) |
//! | queue | shortest positioning time, oldest first beyond an age | aged shortest positioning time |
//! | buffer | segments, each one run of sectors | a pool of blocks, least recently used out first |
//! | look-ahead | a fetch that is not broken off | broken off by a command elsewhere |
//!
//! Pure: no I/O, no clock, no threads. Must not know: `crate::drive`, descriptors, paths, sockets.

mod buffer;
mod disk;
mod spiral;

pub use disk::{Command, Done, Platter};

use alloc::format;
use alloc::string::String;

use seekless_base::Bytes;

/// The values of a maker's data sheet.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSheet {
    /// Turns a minute.
    pub rpm: f64,
    /// 512-byte sectors.
    pub sectors: u64,
    /// Sustained rate at the first sectors, MB/s.
    pub outer_mb_per_s: f64,
    /// Sustained rate at the last sectors, MB/s.
    pub inner_mb_per_s: f64,
    /// Seek to the next track, ms.
    pub track_ms: f64,
    /// Seek over a third of the stroke, ms.
    pub average_ms: f64,
    /// Seek over the whole stroke, ms.
    pub full_ms: f64,
    /// Buffer.
    pub buffer: Bytes,
    /// Commands the drive holds.
    pub queue: u32,
    /// The electronics' work on a command, ms.
    pub command_ms: f64,
    /// Rate of the interface, MB/s.
    pub bus_mb_per_s: f64,
}

impl DataSheet {
    /// Checks that a drive can be made from it.
    ///
    /// # Errors
    /// One line that names the first figure out of range.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: f64, low: f64, high: f64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(format!("{what} = {value} is out of range: {low} to {high}")),
        };
        within("rpm", self.rpm, 1000.0, 30_000.0)?;
        within("sectors", self.sectors as f64, 2048.0, 1e12)?;
        within("outer_mb_per_s", self.outer_mb_per_s, 0.1, 10_000.0)?;
        within("inner_mb_per_s", self.inner_mb_per_s, 0.1, self.outer_mb_per_s)?;
        within("track_ms", self.track_ms, 0.01, 100.0)?;
        within("average_ms", self.average_ms, self.track_ms, 1000.0)?;
        within("full_ms", self.full_ms, self.average_ms, 1000.0)?;
        within("queue", f64::from(self.queue), 1.0, 1024.0)?;
        within("command_ms", self.command_ms, 0.0, 100.0)?;
        within("bus_mb_per_s", self.bus_mb_per_s, 1.0, 100_000.0)
    }
}
