//! Machines that nothing was tuned for, drawn from a seed.
//!
//! A machine is a drive ([`seekless_model::drive::draw`]), memory, a library several times as large, a
//! server, a load and the door of Seekless. The name `SEED:INDEX` determines all of it: it is a value of an
//! axis with the knob `machine`, and the report draws the machine again. Each machine has one drive.

use std::collections::BTreeMap;
use std::str::FromStr;

use seekless_base::Bytes;
use seekless_model::drive::DriveSpec;
use seekless_model::drive::draw::draw as drive;
use seekless_model::workload::draw::Draw;

use super::{Door, Load, ServerKind, ServerVariant};

/// Maximum number of machines of one seed.
pub(crate) const MOST: u32 = 1000;
/// Number of places at which the media rate is sampled.
const PLACES: u64 = 256;
/// Size of a file system over that of its library.
const ROOM: f64 = 1.15;
/// Minimum size of a library: hundreds of clients need files to choose from.
const LIBRARY_LEAST: Bytes = Bytes::gib(8);
/// Exponents of the popularity of files; 0 is uniform.
const EXPONENTS: [f64; 3] = [0.0, 0.8, 1.0];
/// Bits a second of a viewer of SD and of HD (\[A\] section 6.2).
const BITRATES: (f64, f64) = (419e3, 2095e3);
/// Bytes in one request of a client that takes whole files.
const MIRROR_RANGE: Bytes = Bytes::mib(4);
/// Seconds of video in one request of a session (\[A\] section 6.2).
const SEGMENT_S: f64 = 10.0;
/// Seconds until as many viewers leave an initially empty server as arrive.
const SETTLED_S: f64 = 400.0;

/// One machine: the drawn values, and those that follow from them.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the drive, as every command accepts it: `drawn:SEED:INDEX`.
    pub drive: String,
    /// Description of the drive.
    pub label: String,
    /// Page cache.
    pub memory: Bytes,
    /// Size of the library.
    pub library: Bytes,
    /// Size of the file system; it stands for the whole drive.
    pub size: Bytes,
    /// The kind of files, as for `seekless-lab load --content`.
    pub content: &'static str,
    /// Size of every file, if it differs from that of the content.
    pub file_size: Option<Bytes>,
    /// Zipf exponent of their popularity; 0: all alike.
    pub zipf: f64,
    /// Share of HD videos.
    pub hd_share: f64,
    /// Link rates of the viewers, if the load is sessions.
    pub link: &'static str,
    /// The server.
    pub server: ServerKind,
    /// Its configuration.
    pub variant: ServerVariant,
    /// The clients, and what they request.
    pub load: Load,
    /// The load in one word: closed loop, sessions, mirror, large files, hashers.
    pub kind: &'static str,
    /// The door of Seekless.
    pub door: Door,
    /// MB/s of a read of the whole drive from end to end.
    pub media_mb_s: f64,
    /// What the drive transfers in the time of a mean seek and half a turn (\[C\] section 2).
    pub depth: Bytes,
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(name: &str) -> Result<Machine, String> {
        let wrong = || format!("`{name}` is no machine: write SEED:INDEX, two whole numbers");
        let (seed, index) = name.split_once(':').ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse().map_err(|_| wrong());
        Ok(Machine::draw(number(seed)?, number(index)?))
    }
}

/// `low` to `high`; equal ratios are equally likely.
fn log_uniform(draw: &mut Draw, low: f64, high: f64) -> f64 {
    low * libm::pow(high / low, draw.unit())
}

fn pick<T: Copy>(draw: &mut Draw, of: &[T]) -> T {
    of[draw.below(of.len() as u64) as usize]
}

impl Machine {
    /// The machine number `index` of a seed.
    pub fn draw(seed: u64, index: u64) -> Machine {
        let spec = drive(seed, index);
        let mut draw = Draw::new(seed, &format!("machine {index}"));
        let mib = |bytes: f64| Bytes::mib((bytes / f64::from(1 << 20)) as u64);
        let most = spec.capacity().0 as f64 / ROOM / 1.1;
        // The library is several times the memory, and fits the drive.
        let times = log_uniform(&mut draw, 6.0, 20.0);
        let memory = log_uniform(&mut draw, 512.0, 65_536.0) * f64::from(1 << 20);
        let memory = mib(memory.min(most / times));
        let library = mib((memory.0 as f64 * times).max(LIBRARY_LEAST.0 as f64).min(most));
        let (server, variant) = pick(
            &mut draw,
            &[
                (ServerKind::Nginx, ServerVariant::Shipped),
                (ServerKind::Nginx, ServerVariant::Threads),
                // Its maps are not read by calls: SHIM.md asks for `EnableMMAP Off`.
                (ServerKind::Apache, ServerVariant::Threads),
                (ServerKind::Lighttpd, ServerVariant::Shipped),
                // A thread a client, as a server in Go has it.
                (ServerKind::Builtin, ServerVariant::Shipped),
            ],
        );
        let many = log_uniform(&mut draw, 20.0, 400.0).round() as u32;
        let range = Bytes::kib(64 << draw.below(6));
        let hd_share = pick(&mut draw, &[0.0, 0.5, 1.0]);
        let (media_mb_s, depth) = (media_mb_s(&spec), depth(&spec));
        let fill_s = memory.0 as f64 / 1e6 / media_mb_s;
        let zipf = pick(&mut draw, &EXPONENTS);
        let door = pick(&mut draw, &[Door::Shim, Door::Shim, Door::Watch, Door::Observe]);
        // Images of installers, backups, packs.
        let large = Bytes::mib(log_uniform(&mut draw, 64.0, 1024.0) as u64);
        let hashers = 2 + draw.below(15) as u32;
        // A client with large files takes minutes for one, and what is in memory of the next is chance.
        let closed = |clients: u32, range: Bytes, zipf: f64, duration_s: f64| Load::Closed {
            clients,
            range,
            warmup_s: (20.0 + 3.0 * fill_s).round(),
            duration_s,
            popular: zipf > 0.0,
            connections: 1,
            link: None,
            preload: false,
        };
        let (mut content, mut file_size, mut zipf) = ("videos", None, zipf);
        let (kind, load) = match draw.below(10) {
            0..4 => ("closed loop", closed(many, range, zipf, 180.0)),
            4..7 => {
                let bits = BITRATES.0 + hd_share * (BITRATES.1 - BITRATES.0);
                // About what a disk carries that transfers in half of its time.
                let rate = media_mb_s * 1e6 * 8.0 * 0.5 / bits / SEGMENT_S;
                let warmup_s = (3.0 * fill_s).max(SETTLED_S).round();
                let (max_failed, precision) = (0.003, 0.04);
                let load = Load::Search {
                    rate,
                    rate_max: rate * 20.0,
                    max_failed,
                    precision,
                    warmup_s,
                    duration_s: 120.0,
                };
                ("sessions", load)
            }
            7 => {
                content = "mirror";
                ("mirror", closed(many, MIRROR_RANGE, zipf, 180.0))
            }
            8 => {
                file_size = Some(large);
                ("large files", closed(many, MIRROR_RANGE, zipf, 600.0))
            }
            _ => {
                (file_size, zipf) = (Some(large), 0.0);
                ("hashers", closed(hashers, range, zipf, 600.0))
            }
        };
        Machine {
            drive: format!("drawn:{seed}:{index}"),
            size: mib(library.0 as f64 * ROOM).max(library + Bytes::mib(256)),
            label: spec.label.clone(),
            memory,
            library,
            content,
            file_size,
            zipf,
            hd_share,
            // Three HD segments take 18 s at 3.5 Mb/s: the fourth is late whatever the disk does.
            link: if hd_share > 0.0 { "10Mb/s" } else { "3.5Mb/s,10Mb/s" },
            server,
            variant,
            load,
            kind,
            door,
            media_mb_s,
            depth,
        }
    }
}

/// MB/s of a read of the whole drive.
fn media_mb_s(spec: &DriveSpec) -> f64 {
    spec.mean_media_rate() / 1e6
}

fn depth(spec: &DriveSpec) -> Bytes {
    // Distances between independent places have density 2 (1 - u).
    let stroke = f64::from(spec.cylinders() - 1);
    let seek = |i: u64| {
        let u = (i as f64 + 0.5) / PLACES as f64;
        2.0 * (1.0 - u) * spec.seek_time_over((u * stroke) as u32).as_secs_f64() / PLACES as f64
    };
    let seek_s: f64 = (0..PLACES).map(seek).sum();
    let switch_s = seek_s + spec.rotation_period().as_secs_f64() / 2.0;
    Bytes((switch_s * media_mb_s(spec) * 1e6) as u64)
}

impl Machine {
    /// What the report and the checks know of it, by the names of [`crate::metric`].
    pub fn facts(&self) -> BTreeMap<String, f64> {
        let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
        let mut facts = BTreeMap::from([
            ("memory_mib".to_string(), mib(self.memory)),
            ("media_mb_s".to_string(), self.media_mb_s),
            ("depth_kib".to_string(), self.depth.0 as f64 / 1024.0),
        ]);
        match self.load {
            Load::Closed { clients, .. } => facts.insert("clients".into(), f64::from(clients)),
            _ => facts.insert("session_zipf".into(), self.zipf),
        };
        facts
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let mut load = self.kind.to_string();
        if let Load::Closed { clients, range, .. } = &self.load {
            load += &format!(", {clients} clients, {range}");
        }
        if self.zipf > 0.0 {
            load += &format!(", Zipf {}", self.zipf);
        }
        let files = match (self.content, self.file_size, self.hd_share) {
            (_, Some(size), _) => format!("files of {size}"),
            ("videos", None, 0.0) => "SD".to_string(),
            ("videos", None, 1.0) => "HD".to_string(),
            ("videos", None, _) => "SD, HD".to_string(),
            (content, None, _) => content.to_string(),
        };
        let variant = if self.variant == ServerVariant::Shipped {
            String::new()
        } else {
            format!(" {}", self.variant.name())
        };
        format!(
            "{}{variant}, {load}, {files}, {}, {} memory, {} library; {}",
            self.server.name(),
            self.door.name(),
            self.memory,
            self.library,
            self.label
        )
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Lba;

    use super::*;

    #[test]
    fn a_drawn_machine_fits_its_drive() {
        for seed in 0..20 {
            for index in 0..50 {
                let m = Machine::draw(seed, index);
                let what = format!("{seed}:{index}: {}", m.text());
                let spec = drive(seed, index);
                assert!(m.size <= spec.capacity() && m.library < m.size, "{what}");
                let memory = m.memory.0 >> 20;
                assert!((512..=65_536).contains(&memory), "{what}");
                assert!(m.library.0 >= m.memory.0 * 5, "{what}");
                let (outer, inner) = (spec.media_rate(Lba(0)), spec.media_rate(Lba(spec.sectors() - 1)));
                assert!((inner..outer).contains(&(m.media_mb_s * 1e6)), "{what}: {}", m.media_mb_s);
                assert!((100 << 10..=16 << 20).contains(&m.depth.0), "{what}: depth {}", m.depth);
                match m.load {
                    Load::Closed { clients, range, .. } => {
                        assert!((2..=400).contains(&clients), "{what}");
                        assert!(
                            range.0.is_power_of_two() && (64 << 10..=4 << 20).contains(&range.0),
                            "{what}"
                        );
                    }
                    Load::Search { rate, .. } => assert!(rate > 0.5, "{what}: {rate}"),
                    _ => panic!("{what}"),
                }
            }
        }
    }

    #[test]
    fn a_machine_never_changes() {
        let facts = |name: &str| {
            let m: Machine = name.parse().unwrap();
            (m.memory.0 >> 20, m.library.0 >> 20, m.server, m.variant, m.depth.0 >> 10)
        };
        assert_eq!(facts("1:0"), (4196, 25_887, ServerKind::Nginx, ServerVariant::Shipped, 500));
    }

    #[test]
    fn what_is_no_machine_is_said() {
        for wrong in ["", "1", "1:", ":1", "1:-1", "a:b"] {
            assert!(wrong.parse::<Machine>().unwrap_err().contains("SEED:INDEX"), "{wrong}");
        }
    }
}
