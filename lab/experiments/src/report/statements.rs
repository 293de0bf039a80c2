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
use crate::sheet;

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

impl Outcome {
    /// That of a statement with parts of these two.
    fn with(self, other: Outcome) -> Outcome {
        use Outcome::{NotReproduced, NotRun, Reproduced, Undecided};
        let worst = [NotReproduced, NotRun, Undecided].into_iter().find(|bad| [self, other].contains(bad));
        worst.unwrap_or(Reproduced)
    }
}

/// One statement of a paper, or a part of one.
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
    /// Whether it is part of the statement of an earlier check, which is counted.
    pub part: bool,
    /// The parameter that was chosen by looking at it.
    pub fitted: Option<String>,
    /// How the whole statement came out.
    pub outcome: Outcome,
    /// Whether this check holds; absent where nothing was recorded.
    pub holds: Option<bool>,
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
    /// Of those, [`Outcome::Reproduced`], and nothing was chosen by looking at them.
    pub predicted: usize,
    /// [`Outcome::Reproduced`], and a parameter was chosen by looking at them.
    pub fitted: usize,
    /// [`Outcome::NotReproduced`].
    pub not_reproduced: usize,
    /// [`Outcome::Undecided`].
    pub undecided: usize,
    /// [`Outcome::NotRun`].
    pub not_run: usize,
}

impl Counts {
    /// Counts statements, each once for all its parts.
    pub fn of<'a>(all: impl IntoIterator<Item = &'a Statement>) -> Counts {
        let mut counts = Counts::default();
        for statement in all.into_iter().filter(|statement| !statement.part) {
            counts.all += 1;
            *match statement.outcome {
                Outcome::Reproduced if statement.fitted.is_some() => &mut counts.fitted,
                Outcome::Reproduced => &mut counts.predicted,
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
    join(&mut statements);
    Ok(statements)
}

/// Gives the parts of a statement the outcome of the whole: it is reproduced if all of them hold.
fn join(statements: &mut [Statement]) {
    let mut wholes: BTreeMap<(String, String), (Outcome, Option<String>)> = BTreeMap::new();
    let key = |statement: &Statement| (statement.paper.clone(), sheet::sentence(&statement.name));
    for statement in statements.iter() {
        let seen = (statement.outcome, statement.fitted.clone());
        let (outcome, fitted) = wholes.entry(key(statement)).or_insert_with(|| seen.clone());
        *outcome = outcome.with(seen.0);
        *fitted = fitted.take().or(seen.1);
    }
    // Papers that are not typed by the sheet may quote a sentence in several statements.
    for statement in statements.iter_mut().filter(|s| sheet::TYPED.contains(&s.paper.as_str())) {
        (statement.outcome, statement.fitted) = wholes[&key(statement)].clone();
    }
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
        part: false,
        fitted: None,
        outcome: Outcome::NotRun,
        holds: None,
        value: None,
        printed: String::new(),
        why: None,
    };
    let checks = scenario.checks.iter().zip(outcomes).filter_map(|(check, outcome)| {
        let mut statement = stated(&check.name, check.source.as_deref()?);
        (statement.part, statement.fitted) = (check.part, check.fitted.clone());
        statement.printed = format!("{} {}", check.is.sign(), number(check.target));
        if let Some(outcome) = outcome {
            (statement.value, statement.holds) = (outcome.value, Some(outcome.pass));
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
        "| Paper | Statements | Predicted | Fitted | Not reproduced | Not decidable | Not run |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut line = |name: String, counts: Counts| {
        let Counts { all, predicted, fitted, not_reproduced, undecided, not_run } = counts;
        let _ = writeln!(
            text,
            "| {name} | {all} | {predicted} | {fitted} | {not_reproduced} | {undecided} | {not_run} |"
        );
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
        let mut results = made_up("libception-closed-sizes");
        record::add(dir.path(), &results).unwrap();
        let record = Record::read(dir.path(), "libception-closed-sizes").unwrap().unwrap();
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

    fn statement(outcome: Outcome) -> Statement {
        Statement {
            paper: "P".into(),
            scenario: "s".into(),
            name: "n".into(),
            source: "1".into(),
            part: false,
            fitted: None,
            outcome,
            holds: None,
            value: None,
            printed: String::new(),
            why: None,
        }
    }

    #[test]
    fn each_outcome_is_counted_apart_and_a_statement_once() {
        use Outcome::{NotReproduced, NotRun, Reproduced, Undecided};
        let mut all: Vec<_> =
            [Reproduced, NotReproduced, NotReproduced, Undecided, NotRun].map(statement).into();
        all.push(Statement { fitted: Some("rate".into()), ..statement(Reproduced) });
        all.push(Statement { part: true, ..statement(NotReproduced) });
        let counted = "| P | 6 | 1 | 1 | 2 | 1 | 1 |\n| all | 6 | 1 | 1 | 2 | 1 | 1 |";
        assert!(table(&all, str::to_string).contains(counted));
    }

    #[test]
    fn a_statement_holds_if_all_its_parts_do() {
        use Outcome::{NotReproduced, NotRun, Reproduced};
        assert_eq!(Reproduced.with(NotRun), NotRun);
        assert_eq!(NotRun.with(NotReproduced), NotReproduced);
        assert_eq!(Reproduced.with(Reproduced), Reproduced);
    }
}
