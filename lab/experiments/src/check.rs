//! What must hold for a run, as arithmetic over its rows.
//!
//! A ratio is taken inside each repetition, and then the median over repetitions unless stated otherwise: the
//! two runs that it compares were neighbours in time, so the state of the machine affected both. Nothing here
//! knows an absolute time.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::metric;
use crate::row::Row;

/// One condition. A value (`arm`), a ratio (`arm` and `over`), a difference (`arm` and `less`), or an order
/// (`order`, smallest first).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The claim, in words.
    pub name: String,
    /// Metric; the scenario's first if absent.
    pub metric: Option<String>,
    /// The arm whose value, or ratio to `over`, is judged.
    pub arm: Option<String>,
    /// Axis value of `arm`; all axis values together if absent.
    pub x: Option<String>,
    /// The arm that it is divided by.
    pub over: Option<String>,
    /// The arm that is subtracted instead.
    pub less: Option<String>,
    /// Axis value of `over` or `less`; that of `arm` if absent.
    pub over_x: Option<String>,
    /// What the value or the ratio is divided by in the end: the same measured otherwise or elsewhere.
    pub beside: Option<Beside>,
    /// Arms (or `arm@x`) whose values must rise in this order; the value judged is the smallest step's ratio.
    pub order: Option<Vec<String>>,
    /// Only runs of `arm` for which this holds are judged. If it holds for none, the check holds.
    pub having: Option<Having>,
    /// How repetitions and axis values are combined into one number.
    #[serde(default)]
    pub of: Statistic,
    /// How the repetitions of one axis value are combined before that; all values at once if absent.
    pub repetitions: Option<Statistic>,
    /// How value and target are compared. For `order` a step must satisfy it too.
    pub is: Comparison,
    /// The target.
    pub target: f64,
    /// Where the paper prints the statement of the check: section, table or figure. Only such checks are
    /// counted as statements of the paper ([`crate::report::statements`]).
    pub source: Option<String>,
    /// Whether it belongs to the statement of an earlier check with the same quote. The statement holds if
    /// all its parts hold, and is counted once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part: bool,
    /// The parameter that was chosen by looking at what the statement is about, as `docs/CHOSEN.md` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
    /// Two printed numbers whose sum, difference, product or quotient is the target: `"120 / 70"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// How far beyond the target an order must be. Set for the orders of papers ([`crate::sheet`]), not in a
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Margin>,
    /// The cause of a failure, in one sentence without values, if a measurement shows it. Reports show it
    /// only beside a check that fails, with its value.
    pub deviation: Option<String>,
}

/// How far apart two quantities must be to count as ordered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Margin {
    /// Distance from the target if fewer than [`SEEDS`] runs are recorded.
    pub few: f64,
    /// Distance if there are as many, in addition to the interval: the resolution of a search.
    pub many: f64,
}

/// Another value or ratio, of which repetitions and axis values are joined as those of the check.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The metric.
    pub metric: String,
    /// The arm.
    pub arm: String,
    /// Axis value of `arm`; every axis value together when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// Arm it is divided by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Axis value of `over`; that of `arm` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_x: Option<String>,
}

/// A condition on a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Having {
    /// The metric; the condition does not hold for a run without it.
    pub metric: String,
    /// How value and target are compared.
    pub is: Comparison,
    /// The target.
    pub target: f64,
}

impl Having {
    fn holds(&self, row: &Row) -> bool {
        row.metrics.get(&self.metric).is_some_and(|value| self.is.holds(*value, self.target))
    }
}

/// How several values are combined into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Middle value.
    #[default]
    Median,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Sum.
    Sum,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// Above.
    #[serde(rename = ">")]
    Above,
    /// Below.
    #[serde(rename = "<")]
    Below,
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Within [`PRINTED_TOLERANCE`] of a value that a paper prints.
    #[serde(rename = "~")]
    AsPrinted,
    /// A ratio whose gain (what it is above or below 1) is within [`PRINTED_TOLERANCE`] of the printed gain.
    #[serde(rename = "gain~")]
    GainAsPrinted,
}

/// Tolerance of a printed value, as a share of it; the same for all papers. Half of it would demand more than
/// a rebuilt workload can give; with twice as much, an effect of two thirds would pass for an effect of one
/// third.
pub const PRINTED_TOLERANCE: f64 = 0.2;

/// Seeds over which the interval of an order is taken.
pub const SEEDS: usize = 10;

/// Student's t for a two-sided interval of 95 % over [`SEEDS`] values. More values have a smaller one, so
/// their interval is slightly too wide.
const T_95: f64 = 2.262;

impl Comparison {
    /// The comparison's sign.
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::AtLeast => ">=",
            Comparison::AtMost => "<=",
            Comparison::Above => ">",
            Comparison::Below => "<",
            Comparison::Equal => "==",
            Comparison::AsPrinted => "~",
            Comparison::GainAsPrinted => "gain~",
        }
    }

    /// Whether the comparison of `value` with `target` holds. Not-a-number never does.
    pub fn holds(self, value: f64, target: f64) -> bool {
        match self {
            Comparison::AtLeast => value >= target,
            Comparison::AtMost => value <= target,
            Comparison::Above => value > target,
            Comparison::Below => value < target,
            Comparison::Equal => value == target,
            Comparison::AsPrinted => (value - target).abs() <= PRINTED_TOLERANCE * target.abs(),
            Comparison::GainAsPrinted => (value - target).abs() <= PRINTED_TOLERANCE * (target - 1.0).abs(),
        }
    }
}

/// A check with its outcome, as in `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// The claim.
    pub name: String,
    /// The result; `None` if a row that it needs is missing, which fails the check.
    pub value: Option<f64>,
    /// The comparison's sign.
    pub comparison: String,
    /// The target.
    pub target: f64,
    /// Whether it held.
    pub pass: bool,
    /// The metric judged.
    pub metric: String,
    /// Why it did not hold, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<String>,
}

impl Check {
    /// The (arm, axis value) pairs that the check reads.
    pub fn operands(&self) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        if let Some(arm) = &self.arm {
            all.push((arm.clone(), self.x.clone()));
        }
        if let Some(over) = self.over.as_ref().or(self.less.as_ref()) {
            all.push((over.clone(), self.over_x.clone().or_else(|| self.x.clone())));
        }
        all.extend(self.divisor().iter().flat_map(Check::operands));
        all.extend(self.order.iter().flatten().map(|name| split(name)));
        all
    }

    /// What is measured `beside`, as a check of its own.
    fn divisor(&self) -> Option<Check> {
        let beside = self.beside.as_ref()?;
        Some(Check {
            arm: Some(beside.arm.clone()),
            x: beside.x.clone(),
            over: beside.over.clone(),
            over_x: beside.over_x.clone(),
            less: None,
            having: None,
            beside: None,
            ..self.clone()
        })
    }

    /// # Errors
    /// The fields do not form one of these shapes.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let beside = self.beside.iter().map(|b| &b.metric);
        for name in self.metric.iter().chain(self.having.iter().map(|h| &h.metric)).chain(beside) {
            metric::find(name)?;
        }
        if self.having.is_some() && self.arm.is_none() {
            return Err("`having` is about runs of an `arm`, and an `order` has none".into());
        }
        if self.beside.is_some() && self.arm.is_none() {
            return Err("`beside` is about the value of an `arm`, and an `order` has none".into());
        }
        match (&self.arm, self.over.is_some() as u8 + self.less.is_some() as u8, &self.order) {
            (None, _, Some(_)) if self.repetitions.is_some() => {
                Err("`repetitions` says how values or ratios of an `arm` are joined, and an `order` has none".into())
            }
            (Some(_), 0 | 1, None) => Ok(()),
            (None, 0, Some(arms)) if arms.len() >= 2 => Ok(()),
            _ => Err("give `arm` (and `over` for a ratio or `less` for a difference), or `order` with at least two arms".into()),
        }
    }

    /// Judges the rows. `main` is the metric of checks that name none.
    pub fn judge(&self, rows: &[Row], main: &str) -> CheckOutcome {
        let metric = self.metric.as_deref().unwrap_or(main);
        let value = self.value(rows, metric);
        let pass = match value {
            Some(value) => self.is.holds(value, self.target) && self.apart(rows, metric, value),
            None => self.concerns_none(rows),
        };
        CheckOutcome {
            name: self.name.clone(),
            value,
            comparison: self.is.sign().into(),
            target: self.target,
            pass,
            metric: metric.into(),
            deviation: self.deviation.clone().filter(|_| !pass),
        }
    }

    /// Whether an order is beyond its margin, or beyond the 95 % interval if there are enough seeds.
    fn apart(&self, rows: &[Row], metric: &str, value: f64) -> bool {
        let Some(margin) = self.margin else { return true };
        let seeds: BTreeSet<u32> = rows.iter().map(|row| row.repetition).collect();
        if seeds.len() < SEEDS {
            return (value - self.target).abs() > margin.few;
        }
        let of_seed = |seed: &u32| {
            let rows: Vec<Row> = rows.iter().filter(|row| row.repetition == *seed).cloned().collect();
            self.value(&rows, metric)
        };
        let values: Vec<f64> = seeds.iter().filter_map(of_seed).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let half = T_95 * deviation / n.sqrt();
        values.len() >= SEEDS
            && (value - self.target).abs() > margin.many
            && self.is.holds(mean - half, self.target)
            && self.is.holds(mean + half, self.target)
    }

    /// Whether there are runs, and the check's condition holds for none of them.
    fn concerns_none(&self, rows: &[Row]) -> bool {
        let Some((having, arm)) = self.having.as_ref().zip(self.arm.as_deref()) else { return false };
        let mut runs = rows.iter().filter(|r| r.arm == arm).peekable();
        runs.peek().is_some() && runs.all(|row| !having.holds(row))
    }

    fn value(&self, rows: &[Row], metric: &str) -> Option<f64> {
        if let Some(beside) = &self.beside {
            let value = Check { beside: None, ..self.clone() }.value(rows, metric)?;
            let value = value / self.divisor()?.value(rows, &beside.metric)?;
            return value.is_finite().then_some(value);
        }
        if let Some(order) = &self.order {
            let values: Option<Vec<f64>> = order
                .iter()
                .map(|name| {
                    let (arm, x) = split(name);
                    self.of
                        .join(select(rows, metric, &arm, x.as_deref()).into_iter().map(|(_, v)| v).collect())
                })
                .collect();
            let steps: Vec<f64> = values?.windows(2).map(|pair| pair[1] / pair[0]).collect();
            return steps.iter().all(|s| s.is_finite()).then(|| steps.into_iter().reduce(f64::min))?;
        }
        let mut arm = select(rows, metric, self.arm.as_deref()?, self.x.as_deref());
        if let Some(having) = &self.having {
            arm.retain(|(row, _)| having.holds(row));
        }
        let Some(over) = self.over.as_ref().or(self.less.as_ref()) else {
            return self.join(arm);
        };
        let over = select(rows, metric, over, self.over_x.as_deref().or(self.x.as_deref()));
        let ratios: Vec<(&Row, f64)> = arm
            .iter()
            .filter_map(|(row, value)| {
                // The partner of the same repetition and axis value; a fixed arm's only row serves every axis
                // value.
                let same_x = |other: &Row| {
                    other.x == row.x || other.x.is_none() || row.x.is_none() || self.over_x.is_some()
                };
                let (_, base) = over.iter().find(|(o, _)| o.repetition == row.repetition && same_x(o))?;
                Some((*row, if self.less.is_some() { value - base } else { value / base }))
            })
            .collect();
        // A division by nothing measured is not a gain.
        ratios.iter().all(|(_, r)| r.is_finite()).then(|| self.join(ratios))?
    }

    fn join(&self, values: Vec<(&Row, f64)>) -> Option<f64> {
        let Some(repetitions) = self.repetitions else {
            return self.of.join(values.into_iter().map(|(_, v)| v).collect());
        };
        let mut each: BTreeMap<Option<&str>, Vec<f64>> = BTreeMap::new();
        for (row, value) in values {
            each.entry(row.x.as_deref()).or_default().push(value);
        }
        self.of.join(each.into_values().filter_map(|values| repetitions.join(values)).collect())
    }
}

fn split(name: &str) -> (String, Option<String>) {
    match name.split_once('@') {
        Some((arm, x)) => (arm.to_string(), Some(x.to_string())),
        None => (name.to_string(), None),
    }
}

/// The rows of an arm that have the metric, with it. A fixed arm's rows match any axis value.
fn select<'a>(rows: &'a [Row], metric: &str, arm: &str, x: Option<&str>) -> Vec<(&'a Row, f64)> {
    rows.iter()
        .filter(|r| r.arm == arm && (x.is_none() || r.x.is_none() || r.x.as_deref() == x))
        .filter_map(|r| Some((r, *r.metrics.get(metric)?)))
        .collect()
}

impl Statistic {
    /// Combines values into one; `None` without values.
    pub fn join(self, mut values: Vec<f64>) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        Some(match self {
            Statistic::Median if values.len().is_multiple_of(2) => {
                (values[middle - 1] + values[middle]) / 2.0
            }
            Statistic::Median => values[middle],
            Statistic::Min => values[0],
            Statistic::Max => values[values.len() - 1],
            Statistic::Sum => values.iter().sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arm: &str, x: Option<&str>, repetition: u32, value: f64) -> Row {
        Row {
            arm: arm.into(),
            x: x.map(String::from),
            repetition,
            metrics: [("mb_s".to_string(), value)].into(),
            ..Row::default()
        }
    }

    fn check(text: &str) -> Check {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn ratios_are_taken_inside_a_repetition() {
        // The machine halved its speed in the second repetition: the ratio does not notice.
        let rows = [
            row("a", None, 0, 20.0),
            row("b", None, 0, 100.0),
            row("b", None, 1, 50.0),
            row("a", None, 1, 10.0),
        ];
        let check = check("name='x'\narm='b'\nover='a'\nis='>='\ntarget=5.0");
        let outcome = check.judge(&rows, "mb_s");
        assert_eq!(outcome.value, Some(5.0));
        assert!(outcome.pass);
    }

    #[test]
    fn a_printed_value_is_met_within_a_fifth_of_it_on_either_side() {
        let near = |value, target| Comparison::AsPrinted.holds(value, target);
        assert!(near(12.0, 15.0) && near(18.0, 15.0) && !near(11.9, 15.0) && !near(18.1, 15.0));
        assert!(near(-4.0, -4.67) && !near(4.67, -4.67), "the sign counts");
        assert!(!near(f64::NAN, 1.0));
        let gain = |value, target| Comparison::GainAsPrinted.holds(value, target);
        assert!(gain(1.56, 1.47) && !gain(1.36, 1.47) && gain(0.85, 0.84) && !gain(1.16, 0.84));
        assert!(check("name='x'\narm='a'\nis='~'\ntarget=8").judge(&[row("a", None, 0, 9.0)], "mb_s").pass);
    }

    #[test]
    fn a_ratio_is_held_against_what_was_measured_otherwise() {
        let proved = |repetition: u32, value: f64| Row {
            metrics: [("proved_disk_time".to_string(), value)].into(),
            ..row("c", None, repetition, 1.0)
        };
        let rows = [
            row("a", None, 0, 30.0),
            row("b", None, 0, 10.0),
            row("a", None, 1, 30.0),
            row("b", None, 1, 10.0),
            proved(0, 2.0),
            proved(1, 4.0),
        ];
        let check = |arm: &str| {
            let beside = format!("beside={{metric='proved_disk_time', arm='{arm}'}}");
            check(&format!("name='x'\narm='a'\nover='b'\n{beside}\nis='>='\ntarget=0.95"))
        };
        assert_eq!(check("c").judge(&rows, "mb_s").value, Some(1.0));
        assert_eq!(check("c").operands().last(), Some(&("c".to_string(), None)));
        assert_eq!(check("a").judge(&rows, "mb_s").value, None, "it was not measured there");
    }

    #[test]
    fn two_ratios_are_compared() {
        let at = |arm: &str, x: &str, value: f64| row(arm, Some(x), 0, value);
        let rows = [at("a", "1", 30.0), at("b", "1", 10.0), at("a", "64", 50.0), at("b", "64", 10.0)];
        let beside = |x: &str| format!("beside={{metric='mb_s', arm='a', x='{x}', over='b'}}");
        let check =
            |x: &str| check(&format!("name='x'\narm='a'\nx='64'\nover='b'\n{}\nis='>'\ntarget=1", beside(x)));
        assert_eq!(check("1").judge(&rows, "mb_s").value, Some(5.0 / 3.0));
        assert_eq!(check("2").judge(&rows, "mb_s").value, None);
        let read = |arm: &str, x: &str| (arm.to_string(), Some(x.to_string()));
        assert_eq!(check("1").operands(), [read("a", "64"), read("b", "64"), read("a", "1"), read("b", "1")]);
    }

    #[test]
    fn differences() {
        let rows = [row("a", None, 0, 7.0), row("b", None, 0, 9.0)];
        let check = check("name='x'\narm='b'\nless='a'\nis='<='\ntarget=0");
        assert_eq!(check.judge(&rows, "mb_s").value, Some(2.0));
        assert!(
            toml::from_str::<Check>("name='x'\narm='b'\nless='a'\nover='a'\nis='<='\ntarget=0")
                .unwrap()
                .validate()
                .is_err()
        );
    }

    #[test]
    fn ratios_at_an_axis_value_and_against_a_fixed_arm() {
        let rows =
            [row("v", None, 0, 10.0), row("l", Some("1MiB"), 0, 15.0), row("l", Some("2MiB"), 0, 30.0)];
        let at = |x: &str| check(&format!("name='x'\narm='l'\nx='{x}'\nover='v'\nis='>='\ntarget=2"));
        assert_eq!(at("1MiB").judge(&rows, "mb_s").value, Some(1.5));
        assert_eq!(at("2MiB").judge(&rows, "mb_s").value, Some(3.0));
        let between = check("name='x'\narm='l'\nx='2MiB'\nover='l'\nover_x='1MiB'\nis='>='\ntarget=2");
        assert_eq!(between.judge(&rows, "mb_s").value, Some(2.0));
        let best = check("name='x'\narm='l'\nover='v'\nof='max'\nis='>='\ntarget=3");
        assert!(best.judge(&rows, "mb_s").pass);
    }

    #[test]
    fn repetitions_are_joined_first_where_that_is_said() {
        let rows: Vec<Row> = [("1MiB", [9.0, 10.0, 14.0]), ("2MiB", [11.0, 20.0, 12.0])]
            .into_iter()
            .flat_map(|(x, values)| {
                (0..)
                    .zip(values)
                    .flat_map(move |(n, v)| [row("a", Some(x), n, v), row("b", Some(x), n, 10.0)])
            })
            .collect();
        let value = |more: &str| {
            check(&format!("name='x'\narm='a'\nis='>='\ntarget=1\n{more}")).judge(&rows, "mb_s").value
        };
        assert_eq!(value("over='b'\nof='min'"), Some(0.9));
        assert_eq!(value("over='b'\nof='min'\nrepetitions='median'"), Some(1.0));
        assert_eq!(value("over='b'\nof='max'\nrepetitions='median'"), Some(1.2));
        assert_eq!(value("of='max'\nrepetitions='min'"), Some(11.0));
        assert_eq!(value("less='b'\nof='min'\nrepetitions='max'"), Some(4.0));
        let order = check("name='x'\norder=['a','b']\nis='>'\ntarget=1\nrepetitions='min'");
        assert!(order.validate().is_err());
    }

    #[test]
    fn runs_that_do_not_meet_the_condition_are_not_judged() {
        let with = |x: &str, value: f64, p99: f64| {
            let mut row = row("a", Some(x), 0, value);
            row.metrics.insert("p99_ms".into(), p99);
            row
        };
        let rows =
            [with("1", 1.0, 5.0), with("2", 7.0, 50.0), with("3", 9.0, 60.0), row("a", Some("4"), 0, 0.5)];
        let least = |limit: u32| {
            let text = format!("having = {{ metric='p99_ms', is='>=', target={limit} }}");
            check(&format!("name='x'\narm='a'\nof='min'\nis='>='\ntarget=5\n{text}")).judge(&rows, "mb_s")
        };
        assert_eq!((least(50).value, least(50).pass), (Some(7.0), true));
        assert_eq!((least(0).value, least(0).pass), (Some(1.0), false));
        assert_eq!((least(99).value, least(99).pass), (None, true), "it is about none of them");
        let of_nothing =
            check("name='x'\narm='b'\nis='>='\ntarget=5\nhaving={metric='mb_s',is='>',target=0}");
        assert!(!of_nothing.judge(&rows, "mb_s").pass, "no run at all is not measured");
    }

    #[test]
    fn an_order_is_judged_by_its_smallest_step() {
        let rows = [row("a", None, 0, 10.0), row("b", None, 0, 12.0), row("c", None, 0, 18.0)];
        let rising = check("name='x'\norder=['a','b','c']\nis='>'\ntarget=1");
        assert_eq!(rising.judge(&rows, "mb_s").value, Some(1.2));
        assert!(rising.judge(&rows, "mb_s").pass);
        assert!(!check("name='x'\norder=['b','a','c']\nis='>'\ntarget=1").judge(&rows, "mb_s").pass);
    }

    #[test]
    fn an_order_of_a_paper_lies_beyond_its_margin_or_its_interval() {
        let mut above = check("name='x'\narm='b'\nover='a'\nis='>'\ntarget=1");
        let rows = |values: &[f64]| -> Vec<Row> {
            let pair = |(n, v): (u32, &f64)| [row("a", None, n, 10.0), row("b", None, n, 10.0 * v)];
            (0..).zip(values).flat_map(pair).collect()
        };
        assert!(above.judge(&rows(&[1.01]), "mb_s").pass, "a check of ours has no margin");
        above.margin = Some(Margin { few: 0.05, many: 0.0 });
        assert!(!above.judge(&rows(&[1.04]), "mb_s").pass && above.judge(&rows(&[1.06]), "mb_s").pass);
        let near = [1.01, 1.03, 1.02, 1.01, 1.03, 1.02, 1.01, 1.03, 1.02, 1.02];
        assert!(above.judge(&rows(&near), "mb_s").pass, "ten seeds agree");
        above.margin = Some(Margin { few: 0.05, many: 0.04 });
        assert!(!above.judge(&rows(&near), "mb_s").pass, "a search does not resolve it");
        let spread = [0.5, 1.8, 1.1, 0.7, 1.6, 1.1, 0.6, 1.7, 1.1, 1.1];
        assert!(!above.judge(&rows(&spread), "mb_s").pass, "ten seeds do not");
    }

    #[test]
    fn what_was_not_measured_fails() {
        let check = check("name='x'\narm='b'\nover='a'\nis='>='\ntarget=0");
        assert!(!check.judge(&[row("b", None, 0, 1.0)], "mb_s").pass);
        assert!(
            !check.judge(&[row("b", None, 0, 0.0), row("a", None, 0, 0.0)], "mb_s").pass,
            "0/0 is no ratio"
        );
        assert!(!check.judge(&[row("b", None, 0, 1.0), row("a", None, 0, 1.0)], "p50_ms").pass);
    }

    #[test]
    fn joins() {
        let values = || vec![4.0, 1.0, 3.0, 2.0];
        for (how, result) in
            [(Statistic::Median, 2.5), (Statistic::Min, 1.0), (Statistic::Max, 4.0), (Statistic::Sum, 10.0)]
        {
            assert_eq!(how.join(values()), Some(result));
            assert_eq!(how.join(vec![]), None);
        }
    }
}
