//! The paper's conclusions from each figure, as checks.

use super::figures::{Figure, FigurePoint};
use super::{CircusReport, Trials};

/// One conclusion of the paper, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The conclusion, in the paper's words.
    pub says: &'static str,
    /// The result.
    pub value: f64,
    /// Minimum and maximum of the result.
    pub within: (f64, f64),
}

impl Conclusion {
    /// Whether it holds.
    pub fn holds(&self) -> bool {
        (self.within.0..=self.within.1).contains(&self.value)
    }
}

/// A figure's points with their results.
struct Rows<'a>(Vec<(&'a FigurePoint, &'a Trials)>);

type Of = fn(&CircusReport) -> f64;

impl Rows<'_> {
    fn of(&self, keep: impl Fn(&FigurePoint) -> bool) -> Vec<(&FigurePoint, &Trials)> {
        self.0.iter().copied().filter(|(p, _)| keep(p)).collect()
    }

    /// Mean over the selected points.
    fn mean(&self, of: Of, keep: impl Fn(&FigurePoint) -> bool) -> f64 {
        let kept = self.of(keep);
        kept.iter().map(|(_, t)| t.mean(of)).sum::<f64>() / kept.len().max(1) as f64
    }

    /// Largest over smallest value of the selected points.
    fn spread(&self, of: Of, keep: impl Fn(&FigurePoint) -> bool) -> f64 {
        let values: Vec<f64> = self.of(keep).iter().map(|(_, t)| t.mean(of)).collect();
        let (low, high) = values.iter().fold((f64::MAX, 0.0_f64), |(l, h), v| (l.min(*v), h.max(*v)));
        high / low
    }

    fn curves(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(p, _)| p.curve.as_str()).collect();
        names.dedup();
        names
    }

    /// The minimum over the curves of carried over offered load with any order, all loads of a curve taken
    /// together.
    fn carried(&self, keep: impl Fn(&FigurePoint) -> bool) -> f64 {
        let share = |curve: &&str| {
            let rows = self.of(|p| !p.sequential && p.curve == **curve && keep(p));
            let offered: f64 = rows.iter().map(|(p, _)| p.setup.offered()).sum();
            rows.iter().map(|(_, t)| t.mean(|r| r.network)).sum::<f64>() / offered
        };
        self.curves().iter().map(share).filter(|s| s.is_finite()).fold(f64::MAX, f64::min)
    }

    /// Minimum gain of any order over sequential, among the selected points.
    fn gain(&self, keep: impl Fn(&FigurePoint) -> bool) -> f64 {
        let any = self.of(|p| !p.sequential && keep(p));
        let gain = |(p, t): &(&FigurePoint, &Trials)| {
            let sequential = self.mean(|r| r.network, |q| q.sequential && q.curve == p.curve && q.x == p.x);
            t.mean(|r| r.network) / sequential
        };
        any.iter().map(gain).fold(f64::MAX, f64::min)
    }

    /// The value at `x` over that at another.
    fn ratio(&self, of: Of, curve: &str, x: &str, over: &str) -> f64 {
        let at = |x: &str| self.mean(of, |p| !p.sequential && p.curve == curve && p.x == x);
        at(x) / at(over)
    }
}

/// Mean time of the last class, the fastest.
fn fastest_s(r: &CircusReport) -> f64 {
    r.classes.last().map_or(0.0, |c| c.mean_s)
}

/// The conclusions of a figure. Figures 8 to 10 show the same experiments; Figure 8 includes the conclusions
/// of all three.
pub fn conclusions(figure: &Figure, results: &[Trials]) -> Vec<Conclusion> {
    let rows = Rows(figure.points.iter().zip(results).collect());
    match figure.number {
        8 => (8..=10).flat_map(|number| of_figure(number, &rows)).collect(),
        number => of_figure(number, &rows),
    }
}

fn of_figure(number: u32, rows: &Rows<'_>) -> Vec<Conclusion> {
    const MANY: f64 = f64::INFINITY;
    let network: Of = |r| r.network;
    let miss: Of = CircusReport::miss_ratio;
    let says = |says, value, least, most| Conclusion { says, value, within: (least, most) };
    let single = |p: &FigurePoint| !p.sequential && p.setup.classes.len() == 1;
    match number {
        8 => vec![
            says(
                "any order carries what is offered (worst kind of client)",
                rows.carried(|_| true),
                0.9,
                MANY,
            ),
            says(
                "any order more than doubles network throughput at the highest load (worst kind of client)",
                rows.gain(|p| p.x == if p.curve == "T1" { "40" } else { "50" }),
                2.0,
                MANY,
            ),
        ],
        9 => {
            let alone = rows.of(single);
            let rates = alone.iter().map(|(p, t)| t.mean(|r| r.disk) / p.setup.classes[0].rate);
            let ten = |sequential| {
                rows.mean(|r| r.disk, |p| p.sequential == sequential && p.curve == "10T" && p.x == "40")
            };
            vec![
                says(
                    "the disk reads at one client's rate (most, over that rate)",
                    rates.fold(0.0, f64::max),
                    0.0,
                    1.25,
                ),
                says("an order of magnitude below sequential (10T, 40 %)", ten(true) / ten(false), 8.0, MANY),
            ]
        }
        10 => {
            let flat = |curve| rows.spread(|r| r.download_s, |p| single(p) && p.curve == curve);
            let worst = ["T1", "10T", "T3"].into_iter().map(flat).fold(0.0, f64::max);
            vec![says("download time does not depend on load (longest over shortest)", worst, 1.0, 1.1)]
        }
        11 => vec![
            says("any order carries what is offered at every size", rows.carried(|_| true), 0.9, MANY),
            says(
                "the disk reads the same at every size",
                rows.spread(|r| r.disk, |p| !p.sequential),
                1.0,
                1.2,
            ),
            says("sequential carries less than half (worst size)", rows.gain(|_| true), 2.0, MANY),
        ],
        12 => vec![
            says("up to 8 files carry what is offered", rows.carried(|p| p.x != "16"), 0.95, MANY),
            says("16 files carry 0.9 of it", rows.carried(|p| p.x == "16"), 0.9, MANY),
            says(
                "the disk reads in proportion to files, up to 8",
                rows.ratio(|r| r.disk, "10T", "8", "1"),
                6.0,
                10.0,
            ),
        ],
        13 => {
            let t3 = |curve: &str, x: &str, sequential| {
                rows.mean(fastest_s, |p| p.curve == curve && p.x == x && p.sequential == sequential)
            };
            vec![
                says(
                    "delay with loss: T3 downloads take an order of magnitude longer",
                    t3("delay+loss", "10", false) / t3("base", "10", false),
                    7.0,
                    15.0,
                ),
                says(
                    "from 10 to 30 % load: sequential T3 downloads take twice as long",
                    t3("base", "30", true) / t3("base", "10", true),
                    2.0,
                    MANY,
                ),
                says(
                    "and in any order as long as before",
                    t3("base", "30", false) / t3("base", "10", false),
                    0.9,
                    1.2,
                ),
            ]
        }
        14 => vec![
            says(
                "blocks above 64 KiB change nothing (40 %)",
                rows.ratio(network, "40 %", "1024KiB", "64KiB"),
                0.95,
                1.05,
            ),
            says("blocks of 4 KiB do (40 %)", rows.ratio(network, "40 %", "4KiB", "64KiB"), 0.0, 0.95),
        ],
        15 => vec![
            says(
                "long queues miss more (320 over 5 blocks, 40 %)",
                rows.ratio(miss, "40 %", "320", "5"),
                1.5,
                MANY,
            ),
            says("and then carry less", rows.ratio(network, "40 %", "320", "5"), 0.0, 0.95),
        ],
        16 => vec![says(
            "a low threshold misses more (0.25 over 0.75, 30 %)",
            rows.ratio(miss, "30 %", "0.25", "0.75"),
            1.2,
            MANY,
        )],
        17 => vec![
            says(
                "leaps beyond the region miss more (8 over 1, 40 %)",
                rows.ratio(miss, "40 %", "8", "1"),
                1.1,
                MANY,
            ),
            says("and at 40 % carry less", rows.ratio(network, "40 %", "8", "1"), 0.0, 0.95),
        ],
        _ => vec![],
    }
}
