//! The capacity model of Circus \[X\] 2: how many disks and how much memory fill a link with files, by
//! formula.
//!
//! - `N = Rn / Rc` clients of rate `Rc` fill a link of rate `Rn`.
//! - Accesses are spread evenly over the data, so a cache of size `M` answers a share `M / L` of them (2.1),
//!   and the network carries at most `1 / (1 - M/L)` times what the disks deliver (Figure 1).
//! - A disk that positions for `Tpos` before each block of `B` bytes delivers `B / (Tpos + B/Rd)` (Figure 2).
//! - `D = Rn (1 - M/L) / (B / (Tpos + B/Rd))` disks fill the link (2.2 states it without a cache).
//! - Between disk and network every client has at least half a block and at most two in memory: `N B / 2` to
//!   `2 N B` (Figure 3).

use seekless_base::Lba;
use seekless_model::drive::DriveSpec;

/// Blocks of memory for a client at least: half a block (\[X\] 2.2).
const BLOCKS_MIN: f64 = 0.5;
/// And at most: one block being read and one being sent.
const BLOCKS_MAX: f64 = 2.0;
/// Number of places over which a drive is averaged.
const PLACES: u64 = 64;

/// A disk, as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// Mean time to position before an access, seconds: seek and half a turn.
    pub position_s: f64,
    /// Sequential rate, bytes a second.
    pub rate: f64,
}

/// The input of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Rate of the server's link, bytes a second.
    pub link: f64,
    /// Rate of a client, bytes a second.
    pub client: f64,
    /// Size of the data, bytes.
    pub data: f64,
    /// Memory of the server, bytes.
    pub memory: f64,
    /// Block size, bytes.
    pub block: f64,
    /// Its disks.
    pub disk: DiskModel,
}

/// The result for the clients of a [`Question`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirement {
    /// Clients that fill the link.
    pub clients: f64,
    /// Minimum and maximum memory for their buffers, bytes.
    pub buffers: (f64, f64),
    /// Memory left for a cache after the minimum buffers, bytes; `None` if they do not fit.
    pub cache: Option<f64>,
    /// Share of accesses that the cache answers.
    pub hits: f64,
    /// Rate of one disk, bytes a second.
    pub disk: f64,
    /// Disks that fill the link.
    pub disks: u64,
    /// The same if every client shares each read, in any order (\[X\] 3): one client's rate for each popular
    /// file.
    pub disks_any_order: u64,
}

impl DiskModel {
    /// The mean of a drive over its whole surface: positioning between independent places, and the rate at
    /// even distances.
    pub fn of(drive: &DriveSpec) -> DiskModel {
        let last = drive.sectors() - 1;
        let place = |i: u64| Lba((last as u128 * u128::from(i) / u128::from(PLACES - 1)) as u64);
        let (mut seek, mut rate) = (0.0, 0.0);
        for i in 0..PLACES {
            rate += drive.media_rate(place(i)) / PLACES as f64;
            for j in 0..PLACES {
                seek += drive.seek_time(place(i), place(j)).as_secs_f64() / (PLACES * PLACES) as f64;
            }
        }
        let overhead = drive.electronics.read_miss_ms / 1e3;
        DiskModel { position_s: overhead + seek + drive.rotation_period().as_secs_f64() / 2.0, rate }
    }

    /// Its rate in blocks of this size at random places, bytes a second (Figure 2).
    pub fn throughput(&self, block: f64) -> f64 {
        block / (self.position_s + block / self.rate)
    }
}

/// Maximum of the network's rate over the disks' rate, with a share of the data in memory (Figure 1);
/// infinite if all of it is.
pub fn network_over_disk(share: f64) -> Option<f64> {
    (share < 1.0).then(|| 1.0 / (1.0 - share.max(0.0)))
}

/// Minimum and maximum buffer space for clients (Figure 3), bytes.
pub fn buffers(clients: f64, block: f64) -> (f64, f64) {
    (BLOCKS_MIN * clients * block, BLOCKS_MAX * clients * block)
}

/// Number of disks for a rate of reading, at least one unless nothing is read.
fn disks(rate: f64, each: f64) -> u64 {
    if rate <= 0.0 { 0 } else { (rate / each).ceil().max(1.0) as u64 }
}

impl Question {
    /// The result of the model.
    pub fn answer(&self) -> Requirement {
        let clients = self.link / self.client;
        let buffers = buffers(clients, self.block);
        let cache = Some(self.memory - buffers.0).filter(|c| *c >= 0.0);
        let hits = (cache.unwrap_or(0.0) / self.data).min(1.0);
        let disk = self.disk.throughput(self.block);
        Requirement {
            clients,
            buffers,
            cache,
            hits,
            disk,
            disks: disks(self.link * (1.0 - hits), disk),
            disks_any_order: disks(self.client.min(self.link), disk),
        }
    }

    /// The block size, of the powers of two from 4 KiB to 64 MiB, that needs the fewest disks with the
    /// available memory; the smallest of several. `None` if not even the smallest fits.
    pub fn best_block(&self) -> Option<(f64, Requirement)> {
        (12..=26)
            .map(|shift| Question { block: (1_u64 << shift) as f64, ..*self })
            .map(|q| (q.block, q.answer()))
            .filter(|(_, a)| a.cache.is_some())
            .min_by(|a, b| a.1.disks.cmp(&b.1.disks).then(a.0.total_cmp(&b.0)))
    }
}

#[cfg(test)]
mod tests {
    use seekless_model::drive::catalogue;

    use super::*;

    const PAPER: DiskModel = DiskModel { position_s: 0.005, rate: 50e6 };
    /// 128 MB/s: the paper's value for 1 Gb/s (664 clients of 193 KB/s).
    const GIGABIT: f64 = 128e6;

    fn question(client: f64, block: f64) -> Question {
        Question { link: GIGABIT, client, data: 1e15, memory: 16e9, block, disk: PAPER }
    }

    /// The figures of section 2.2's text.
    #[test]
    fn the_papers_own_examples() {
        let kib = 1024.0;
        let a = question(193e3, 256.0 * kib).answer();
        assert_eq!(a.clients.ceil(), 664.0);
        assert!((a.disk / 1e6 - 25.0).abs() < 1.0, "{}", a.disk);
        // 5.001 with 128 MB/s, for which no sixth disk would be bought.
        let decimal = Question { link: 125e6, ..question(193e3, 256.0 * kib) };
        assert_eq!(decimal.answer().disks, 5);
        assert!((a.buffers.0 / 1e6 - 87.0).abs() < 1.0, "{}", a.buffers.0);
        let a = question(193e3, 1024.0 * kib).answer();
        assert!((a.disk / 1e6 - 40.0).abs() < 1.0, "{}", a.disk);
        assert_eq!(a.disks, 4);
        // 325 MB in the text; 348 million bytes, or 332 MiB, by its own formula.
        assert!((a.buffers.0 / 325e6 - 1.0).abs() < 0.08, "{}", a.buffers.0);
        for (block, gigabytes) in [(256.0, 2.18), (1024.0, 8.7)] {
            let least = question(56e3 / 8.0, block * kib).answer().buffers.0;
            assert!((least / (gigabytes * 1e9) - 1.0).abs() < 0.11, "{least}");
        }
        assert_eq!(network_over_disk(0.5), Some(2.0));
        assert_eq!(network_over_disk(1.0), None);
    }

    #[test]
    fn memory_that_holds_everything_needs_no_disks_and_too_little_is_said() {
        let q = Question { data: 1e9, ..question(193e3, 65536.0) };
        assert_eq!((q.answer().hits, q.answer().disks), (1.0, 0));
        let q = Question { memory: 1e6, ..question(193e3, 1e6) };
        assert_eq!((q.answer().cache, q.answer().hits), (None, 0.0));
        assert!(Question { memory: 1.0, ..q }.best_block().is_none());
    }

    #[test]
    fn the_best_block_is_as_large_as_memory_lets_it_be_and_no_larger_than_needed() {
        let q = Question { memory: 400e6, ..question(193e3, 65536.0) };
        let (block, answer) = q.best_block().unwrap();
        // 512 KiB gives 34 MB/s, so four disks; 1 MiB gives 40 and needs four as well.
        assert_eq!(block, (1 << 19) as f64);
        assert_eq!(answer.disks, 4);
        let tight = Question { memory: 50e6, ..q }.best_block().unwrap();
        assert!(tight.0 < block && tight.1.disks > 4);
    }

    /// Within the maker's specification: 5.2 ms mean seek, 3 ms half turn, 26 to 40 MB/s.
    #[test]
    fn a_drive_of_the_catalogue_is_averaged() {
        let disk = DiskModel::of(&catalogue::get("cheetah-18gb-10k").unwrap());
        assert!((disk.position_s - 0.00845).abs() < 0.0007, "{disk:?}");
        assert!((disk.rate / 1e6 - 34.5).abs() < 1.5, "{disk:?}");
    }
}
