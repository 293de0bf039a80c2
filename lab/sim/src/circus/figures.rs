//! Every figure of the paper's evaluation as a set of experiments, with the values of its text.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::DriveSpec;
use seekless_reorder::Config;

use super::{Class, LINKS, Setup};

/// Memory of the paper's servers, 256 MB (4.3), less 48 MB guessed for the system and its network buffers.
pub const MEMORY: Bytes = Bytes::mib(208);
/// A process of about 1 MB for each client (5.1).
pub const PER_CLIENT: Bytes = Bytes::mib(1);
/// One gigabit a second, bytes a second.
pub const GIGABIT: f64 = 125e6;

/// A value that the paper's text gives for a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedFigure {
    /// The measured quantity: `network`, `disk` (MB/s), `t3_s` or `download_s` (seconds).
    pub metric: &'static str,
    /// Its value.
    pub value: f64,
    /// Whether the text gives a value (`=`, roughly) or a bound (`<` or `>`).
    pub sense: &'static str,
}

/// One point of a figure: an experiment, and its place in the figure.
#[derive(Clone, Debug)]
pub struct FigurePoint {
    /// Curve: client classes, or whatever the figure varies besides its axis.
    pub curve: String,
    /// Value on the axis.
    pub x: String,
    /// Out-of-order or sequential.
    pub sequential: bool,
    /// The experiment.
    pub setup: Setup,
    /// The paper's values for it.
    pub published: Vec<PublishedFigure>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Number in the paper.
    pub number: u32,
    /// Its subject.
    pub title: &'static str,
    /// Its axis.
    pub axis: &'static str,
    /// Its points.
    pub points: Vec<FigurePoint>,
}

/// Numbers of all figures.
pub const NUMBERS: std::ops::RangeInclusive<u32> = 8..=17;

/// Clients of named links with equal or given shares.
pub fn classes(names: &[(&str, f64)]) -> Vec<Class> {
    let of = |name: &str| LINKS.iter().find(|(n, _)| *n == name).map_or(0.0, |(_, bits)| bits / 8.0);
    names.iter().map(|(n, share)| Class { name: (*n).to_owned(), rate: of(n), share: *share }).collect()
}

/// The paper's mix of links (4.3).
pub fn mix() -> Vec<Class> {
    classes(&[("T1", 0.2), ("10T", 0.6), ("T3", 0.2)])
}

/// The experiment that all figures vary: one file of 512 MB, 10T clients, 40 % load, the paper's parameters.
pub fn base(drive: &DriveSpec, seed: u64, time: Nanos) -> Setup {
    Setup {
        drive: drive.clone(),
        server: Config::default(),
        memory: MEMORY,
        per_client: PER_CLIENT,
        files: 1,
        size: Bytes::mib(512),
        load: 0.4,
        link_rate: GIGABIT,
        classes: classes(&[("10T", 1.0)]),
        round_trip: Nanos::from_millis(1),
        loss: 0.0,
        warm_up: None,
        time,
        seed,
    }
}

/// The experiments of a figure; none for a number that is not in [`NUMBERS`].
pub fn figure(number: u32, base: &Setup) -> Option<Figure> {
    let (title, axis, points) = match number {
        8..=10 => {
            let title = match number {
                8 => "network throughput by client link and load",
                9 => "disk throughput by client link and load",
                _ => "download time by client link and load",
            };
            (title, "load, %", by_load(base, number))
        }
        11 => ("file size, T3 links, 40 % load", "file size", by_size(base)),
        12 => ("number of files, 10T links, 40 % load", "files", by_files(base)),
        13 => ("delay and loss, T1 and T3 links", "load, %", by_path(base)),
        14 => ("block size, 10T and T3 links", "block size", by_block(base)),
        15 => ("queue length, 10T and T3 links", "queue length", by_queue(base)),
        16 => ("client threshold, T1 and T3 links", "threshold", by_threshold(base)),
        17 => ("leapfront factor, 10T and T3 links", "leapfront factor", by_leapfront(base)),
        _ => return None,
    };
    Some(Figure { number, title, axis, points })
}

fn both(points: &mut Vec<FigurePoint>, curve: &str, x: String, setup: &Setup) {
    for sequential in [false, true] {
        let setup = if sequential { setup.sequential() } else { setup.clone() };
        points.push(FigurePoint {
            curve: curve.to_owned(),
            x: x.clone(),
            sequential,
            setup,
            published: vec![],
        });
    }
}

/// Adds the text's values to their points.
fn says(
    points: &mut [FigurePoint],
    of: impl Fn(&FigurePoint) -> bool,
    metric: &'static str,
    sense: &'static str,
    value: f64,
) {
    for point in points.iter_mut().filter(|p| of(p)) {
        point.published.push(PublishedFigure { metric, value, sense });
    }
}

fn by_load(base: &Setup, number: u32) -> Vec<FigurePoint> {
    let mut points = vec![];
    for (curve, clients) in [
        ("T1", classes(&[("T1", 1.0)])),
        ("10T", classes(&[("10T", 1.0)])),
        ("T3", classes(&[("T3", 1.0)])),
        ("mix", mix()),
    ] {
        for load in [10, 20, 30, 40, 50] {
            // The paper's own T1 measurements end at 30 to 40 % (5.1).
            if curve == "T1" && load > 40 {
                continue;
            }
            let setup = Setup { load: f64::from(load) / 100.0, classes: clients.clone(), ..base.clone() };
            both(&mut points, curve, load.to_string(), &setup);
        }
    }
    match number {
        8 => {
            says(
                &mut points,
                |p| !p.sequential && p.x == "40" && p.curve != "mix" && p.curve != "T1",
                "network",
                "=",
                51.2,
            );
            says(&mut points, |p| !p.sequential && p.x == "50" && p.curve == "mix", "network", "=", 50.0);
            says(&mut points, |p| p.sequential, "network", "<", 30.0);
        }
        9 => {
            says(&mut points, |p| !p.sequential && p.curve == "10T", "disk", "=", 1.0);
            says(&mut points, |p| !p.sequential && p.curve == "mix" && p.x == "10", "disk", "=", 5.6);
            says(&mut points, |p| p.sequential && p.curve == "10T" && p.x == "40", "disk", "=", 10.0);
        }
        _ => {
            // "Remain roughly constant, according to the client rates": the file at the link's rate.
            for (curve, bits) in LINKS {
                let at_rate = 536_870_912.0 * 8.0 / bits;
                says(&mut points, |p| !p.sequential && p.curve == curve, "download_s", "=", at_rate);
            }
        }
    }
    points
}

fn by_size(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for mib in [256, 384, 512, 768, 1024] {
        let setup = Setup { size: Bytes::mib(mib), classes: classes(&[("T3", 1.0)]), ..base.clone() };
        both(&mut points, "T3", format!("{mib}MiB"), &setup);
    }
    says(&mut points, |p| !p.sequential, "network", "=", 50.0);
    says(&mut points, |p| p.sequential, "network", "<", 20.0);
    points
}

fn by_files(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for files in [1, 2, 4, 8, 16] {
        both(&mut points, "10T", files.to_string(), &Setup { files, ..base.clone() });
    }
    says(&mut points, |p| !p.sequential && p.x != "16", "network", "=", 50.0);
    says(&mut points, |p| !p.sequential && p.x == "16", "network", "=", 48.0);
    says(&mut points, |p| !p.sequential && p.x == "16", "disk", "=", 10.0);
    points
}

fn by_path(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    let far = Nanos::from_millis(75);
    let near = Nanos::from_millis(1);
    for (curve, round_trip, loss) in
        [("base", near, 0.0), ("delay", far, 0.0), ("loss", near, 0.1), ("delay+loss", far, 0.1)]
    {
        for load in [10, 20, 30] {
            let setup = Setup {
                load: f64::from(load) / 100.0,
                classes: classes(&[("T1", 0.5), ("T3", 0.5)]),
                round_trip,
                loss,
                ..base.clone()
            };
            both(&mut points, curve, load.to_string(), &setup);
        }
    }
    // "Increases by an order of magnitude", ten-fold, from the base case: ten times the file at the rate of a
    // T3 link.
    says(&mut points, |p| !p.sequential && p.curve == "delay+loss" && p.x == "10", "t3_s", "=", 960.0);
    points
}

fn by_block(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for load in [20, 40] {
        for kib in [4, 16, 64, 256, 1024] {
            let mut setup = Setup { load: f64::from(load) / 100.0, classes: halves(), ..base.clone() };
            setup.server.block = Bytes::kib(kib);
            setup.server.read = setup.server.block;
            points.push(alone(format!("{load} %"), format!("{kib}KiB"), setup));
        }
    }
    points
}

fn halves() -> Vec<Class> {
    classes(&[("10T", 0.5), ("T3", 0.5)])
}

fn alone(curve: String, x: String, setup: Setup) -> FigurePoint {
    FigurePoint { curve, x, sequential: false, setup, published: vec![] }
}

fn by_queue(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for load in [10, 20, 30, 40] {
        for queue in [1, 5, 20, 80, 320] {
            let mut setup = Setup { load: f64::from(load) / 100.0, classes: halves(), ..base.clone() };
            setup.server.queue = queue;
            points.push(alone(format!("{load} %"), queue.to_string(), setup));
        }
    }
    points
}

fn by_threshold(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for load in [10, 20, 30] {
        for threshold in [0.25, 0.5, 0.75, 0.9] {
            let clients = classes(&[("T1", 0.5), ("T3", 0.5)]);
            let mut setup = Setup { load: f64::from(load) / 100.0, classes: clients, ..base.clone() };
            setup.server.threshold = threshold;
            points.push(alone(format!("{load} %"), threshold.to_string(), setup));
        }
    }
    points
}

fn by_leapfront(base: &Setup) -> Vec<FigurePoint> {
    let mut points = vec![];
    for load in [10, 20, 30, 40] {
        for factor in [0.5, 1.0, 2.0, 4.0, 8.0] {
            let mut setup = Setup { load: f64::from(load) / 100.0, classes: halves(), ..base.clone() };
            setup.server.leapfront = factor;
            points.push(alone(format!("{load} %"), factor.to_string(), setup));
        }
    }
    points
}
