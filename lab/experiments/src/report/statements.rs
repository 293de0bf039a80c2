//! What the papers print about outcomes, and which of it the recorded runs reproduce.
//!
//! A statement is a check with a `source`, or an `[[undecided]]` of a scenario. It is judged over the
//! recorded rows: those of the simulator where there are any, else those of a live run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use seekless_base::Fault;
use serde::Serialize;

use super::number;
use crate::check::CheckOutcome;
use crate::record::Record;
use crate::scenario::{self, Scenario};

/// How a statement came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A recorded run agrees.
    Reproduced,
    /// It does not.
    NotReproduced,
    /// Nothing here can tell.
    Undecided,
    /// No recorded run has what the check reads.
    NotRun,
}

/// One statement of a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Statement {
    /// The paper, as scenarios name it.
    pub paper: String,
    /// The scenario that holds it.
    pub scenario: String,
    /// What is stated.
    pub name: String,
    /// Where it is printed.
    pub source: String,
    /// How it came out.
    pub outcome: Outcome,
    /// Our value.
    pub value: Option<f64>,
    /// Comparison and printed value; empty for what is undecided.
    pub printed: String,
    /// Why it is not reproduced or not decided, where that is known.
    pub why: Option<String>,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Statements.
    pub all: usize,
    /// Of those, [`Outcome::Reproduced`].
    pub reproduced: usize,
    /// [`Outcome::NotReproduced`].
    pub not_reproduced: usize,
    /// [`Outcome::Undecided`].
    pub undecided: usize,
    /// [`Outcome::NotRun`].
    pub not_run: usize,
}

impl Counts {
    /// Counts statements.
    pub fn of<'a>(all: impl IntoIterator<Item = &'a Statement>) -> Counts {
        let mut counts = Counts::default();
        for statement in all {
            counts.all += 1;
            *match statement.outcome {
                Outcome::Reproduced => &mut counts.reproduced,
                Outcome::NotReproduced => &mut counts.not_reproduced,
                Outcome::Undecided => &mut counts.undecided,
                Outcome::NotRun => &mut counts.not_run,
            } += 1;
        }
        counts
    }
}

/// Every statement, by paper, in the order of the scenarios.
///
/// # Errors
/// Those of reading scenarios and records.
pub fn all(records: &Path) -> Result<Vec<Statement>, Fault> {
    let mut statements = Vec::new();
    for (name, text) in scenario::all() {
        let scenario = Scenario::parse(text, name)?;
        let record = Record::read(records, name)?;
        statements.extend(of(name, &scenario, &judged(&scenario, record.as_ref())));
    }
    statements.sort_by(|a, b| a.paper.cmp(&b.paper));
    Ok(statements)
}

/// What became of each check of a scenario: simulated, else live; `None` where no record has what it reads.
fn judged(scenario: &Scenario, record: Option<&Record>) -> Vec<Option<CheckOutcome>> {
    let of = |driver: &str| record.and_then(|r| r.results(driver, scenario)).map(|r| r.checks);
    let (simulated, live) = (of("sim"), of("live"));
    let one = |checks: &Option<Vec<CheckOutcome>>, i: usize| {
        checks.as_ref().map(|c| c[i].clone()).filter(|c| c.value.is_some())
    };
    (0..scenario.checks.len()).map(|i| one(&simulated, i).or_else(|| one(&live, i))).collect()
}

/// Those of one scenario.
fn of(name: &str, scenario: &Scenario, outcomes: &[Option<CheckOutcome>]) -> Vec<Statement> {
    let Some(paper) = &scenario.paper else { return Vec::new() };
    let stated = |name_of: &str, source: &str| Statement {
        paper: paper.clone(),
        scenario: name.into(),
        name: name_of.into(),
        source: source.into(),
        outcome: Outcome::NotRun,
        value: None,
        printed: String::new(),
        why: None,
    };
    let checks = scenario.checks.iter().zip(outcomes).filter_map(|(check, outcome)| {
        let mut statement = stated(&check.name, check.source.as_deref()?);
        statement.printed = format!("{} {}", check.is.sign(), number(check.target));
        if let Some(outcome) = outcome {
            statement.value = outcome.value;
            statement.outcome = if outcome.pass { Outcome::Reproduced } else { Outcome::NotReproduced };
            statement.why = outcome.deviation.clone();
        }
        Some(statement)
    });
    let undecided = scenario.undecided.iter().map(|u| Statement {
        outcome: Outcome::Undecided,
        why: Some(u.reason.clone()),
        ..stated(&u.name, &u.source)
    });
    checks.chain(undecided).collect()
}

/// A line for each paper and one for all, as a Markdown table. `link` makes the first cell of a paper's name.
pub fn table(statements: &[Statement], link: impl Fn(&str) -> String) -> String {
    let mut by_paper: BTreeMap<&str, Vec<&Statement>> = BTreeMap::new();
    for statement in statements {
        by_paper.entry(&statement.paper).or_default().push(statement);
    }
    let mut text = String::from(
        "| Paper | Statements | Reproduced | Not reproduced | Undecided | Not run |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut line = |name: String, counts: Counts| {
        let Counts { all, reproduced, not_reproduced, undecided, not_run } = counts;
        let _ =
            writeln!(text, "| {name} | {all} | {reproduced} | {not_reproduced} | {undecided} | {not_run} |");
    };
    for (paper, of_paper) in by_paper {
        line(link(paper), Counts::of(of_paper));
    }
    line("all".into(), Counts::of(statements));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;
    use crate::report::tests::made_up;

    #[test]
    fn a_statement_is_judged_over_the_recorded_rows_by_todays_check() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = made_up("libception-fig13");
        record::add(dir.path(), &results).unwrap();
        let record = Record::read(dir.path(), "libception-fig13").unwrap().unwrap();
        let scenario = &mut results.scenario;
        let text = "name='as printed'\narm='Vanilla'\nis='~'\ntarget=10\nsource='Table 3'";
        scenario.checks = vec![toml::from_str(text).unwrap()];
        let of = |scenario: &Scenario, record| of("x", scenario, &judged(scenario, record));
        let outcome = |scenario: &Scenario, record| of(scenario, record)[0].outcome;
        assert_eq!(outcome(scenario, Some(&record)), Outcome::Reproduced);
        assert_eq!(outcome(scenario, None), Outcome::NotRun);
        scenario.checks[0].target = 100.0;
        assert_eq!(outcome(scenario, Some(&record)), Outcome::NotReproduced);
        scenario.checks[0].metric = Some("runtime_s".into());
        assert_eq!(outcome(scenario, Some(&record)), Outcome::NotRun, "the record has no such metric");
        scenario.checks[0].source = None;
        assert!(of(scenario, Some(&record)).is_empty(), "a check of ours is no statement of the paper");
    }

    #[test]
    fn each_outcome_is_counted_apart() {
        let statement = |outcome| Statement {
            paper: "P".into(),
            scenario: "s".into(),
            name: "n".into(),
            source: "1".into(),
            outcome,
            value: None,
            printed: String::new(),
            why: None,
        };
        use Outcome::{NotReproduced, NotRun, Reproduced, Undecided};
        let all = [Reproduced, NotReproduced, NotReproduced, Undecided, NotRun].map(statement);
        assert!(
            table(&all, str::to_string).contains("| P | 5 | 1 | 2 | 1 | 1 |\n| all | 5 | 1 | 2 | 1 | 1 |")
        );
    }
}
