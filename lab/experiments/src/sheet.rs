//! The rule sheet for statements of papers, `docs/STATEMENTS.md`, as far as a program can apply it.
//!
//! A check with a `source` is a statement, or a part of one. Its type follows from its comparison. The sheet
//! asks that its target is a number of the sentence it quotes, or the reading of a word in it, and that a
//! sentence is counted once.

use std::collections::BTreeMap;
use std::fmt;

use seekless_base::Fault;
use serde::Serialize;

use crate::check::{Check, Comparison, Margin};
use crate::scenario::{self, Load, Scenario};

/// Papers whose statements are typed by the sheet.
pub const TYPED: &[&str] = &[
    "Automated prefetch sizing 2014",
    "Circus 2004",
    "Competitive prefetching 2007",
    "Libception 2018",
    "PFC 2008",
];

/// Page of the parameters that the papers do not give.
pub const CHOSEN: &str = "docs/CHOSEN.md";

/// Half-length of the paper's own intervals ([X] 4.3), and the margin of an order below ten seeds.
const MARGIN: f64 = 0.05;
/// The same for a difference of gains, percentage points.
const MARGIN_POINTS: f64 = 1.0;
/// How far a target may be from the number it is derived from: what is lost by printing it.
const ROUNDING: f64 = 1e-3;
/// Shortest quote that can be told to be part of another, letters.
const FRAGMENT_MIN: usize = 20;

/// Words for the value 1 of a quotient.
const SAME: &[&str] = &[
    "same",
    "equal",
    "similar",
    "comparable",
    "constant",
    "unchanged",
    "insensitive",
    "regardless",
    "little",
    "no difference",
    "no change",
    "not significantly",
    "not very",
    "marginal",
    "matches",
    "small",
    "slight",
    "somewhat",
    "approach",
    "keep",
    "maintain",
    "minimal",
    "not affected",
    "not improve",
];
/// Words for an order by more than a fifth.
const MUCH: &[&str] =
    &["significant", "considerabl", "dramatic", "rapid", "highly", "greatly", "much", "substantial", "well"];
/// Words for numbers.
const NUMBERS: &[(&str, f64)] = &[
    ("half", 0.5),
    ("double", 2.0),
    ("doubling", 2.0),
    ("twice", 2.0),
    ("two-fold", 2.0),
    ("twofold", 2.0),
    ("threefold", 3.0),
    ("order of magnitude", 10.0),
    ("ten-fold", 10.0),
];

/// What a statement states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number, within a fifth.
    Value,
    /// Which of two quantities is larger.
    Order,
    /// Whether a gain is one.
    Sign,
    /// A printed bound.
    Bound,
}

/// A rule that a scenario breaks.
#[derive(Clone, Debug, Serialize)]
pub struct Breach {
    /// The scenario's file.
    pub file: String,
    /// Line of the check.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.why)
    }
}

/// The type of a check of a paper.
///
/// # Errors
/// The sheet has no such comparison.
pub fn kind(check: &Check) -> Result<Kind, String> {
    use Comparison::{Above, AsPrinted, AtLeast, AtMost, Below, Equal, GainAsPrinted};
    let strict = matches!(check.is, Above | Below);
    let quotient = check.over.is_some() || check.order.is_some() || check.beside.is_some();
    match check.is {
        AsPrinted | GainAsPrinted => Ok(Kind::Value),
        Equal => Err("`==` is no comparison of the sheet: a printed value is met within a fifth, `~`".into()),
        _ if quotient && strict && [1.0, 1.2, 0.8].contains(&check.target) => Ok(Kind::Order),
        _ if check.less.is_some() && check.target == 0.0 && strict => Ok(Kind::Order),
        // A metric that is a quotient itself.
        _ if check.arm.is_some() && strict && check.target == 1.0 => Ok(Kind::Order),
        _ if check.arm.is_some() && !quotient && check.less.is_none() && check.target == 0.0 => {
            Ok(Kind::Sign)
        }
        Above | Below | AtLeast | AtMost => Ok(Kind::Bound),
    }
}

/// Gives the orders of a paper that is typed their margin.
///
/// # Errors
/// A file sets a margin of its own.
pub(crate) fn resolve(scenario: &mut Scenario) -> Result<(), String> {
    if let Some(check) = scenario.checks.iter().find(|check| check.margin.is_some()) {
        return Err(format!("check `{}`: `margin` follows from docs/STATEMENTS.md", check.name));
    }
    if !scenario.paper.as_deref().is_some_and(|paper| TYPED.contains(&paper)) {
        return Ok(());
    }
    let found = match &scenario.load {
        Load::Search { precision, .. } => 2.0 * precision,
        _ => 0.0,
    };
    for check in scenario.checks.iter_mut().filter(|check| check.source.is_some()) {
        let by_a_word = [1.2, 0.8].contains(&check.target);
        check.margin = match kind(check) {
            Ok(Kind::Order) if check.less.is_some() => Some(Margin { few: MARGIN_POINTS, many: 0.0 }),
            Ok(Kind::Order) if !by_a_word => Some(Margin { few: MARGIN.max(found), many: found }),
            _ => None,
        };
    }
    Ok(())
}

/// What one scenario of the user's own breaks by itself.
///
/// # Errors
/// The first breach, with file and line.
pub(crate) fn refuse(file: &str, text: &str, scenario: &Scenario) -> Result<(), Fault> {
    let mut sheet = Sheet::default();
    sheet.read(file, text, scenario);
    match sheet.breaches.first() {
        Some(breach) => Err(Fault::usage(format!("{breach}; docs/STATEMENTS.md has the rules"))),
        None => Ok(()),
    }
}

/// What the scenarios of the program break. `chosen` is the text of `docs/CHOSEN.md`, where it is at hand.
///
/// # Errors
/// Those of reading scenarios.
pub fn breaches(chosen: Option<&str>) -> Result<Vec<Breach>, Fault> {
    let mut sheet = Sheet { chosen: chosen.map(parameters), ..Sheet::default() };
    for (name, text) in scenario::all() {
        sheet.read(&format!("scenarios/{name}.toml"), text, &Scenario::parse(text, name)?);
    }
    Ok(sheet.breaches)
}

/// The second cells of the first table of CHOSEN.md.
fn parameters(chosen: &str) -> Vec<String> {
    let table = chosen.split("\n## ").nth(1).unwrap_or_default();
    let cells = table.lines().filter_map(|line| line.split('|').nth(2).map(|cell| cell.trim().to_string()));
    cells.collect()
}

/// Scenarios read so far.
#[derive(Default)]
struct Sheet {
    chosen: Option<Vec<String>>,
    /// Sentences of each paper, and where they were found.
    sentences: BTreeMap<String, Vec<(String, String)>>,
    breaches: Vec<Breach>,
}

impl Sheet {
    fn read(&mut self, file: &str, text: &str, scenario: &Scenario) {
        let Some(paper) = scenario.paper.as_deref().filter(|paper| TYPED.contains(paper)) else { return };
        let lines = |header: &str| -> Vec<usize> {
            let numbered = text.lines().zip(1..);
            numbered.filter(|(line, _)| line.trim() == header).map(|(_, number)| number + 1).collect()
        };
        for (check, line) in scenario.checks.iter().zip(lines("[[check]]")) {
            if check.source.is_none() {
                let counted = [check.part, check.fitted.is_some(), check.printed.is_some()];
                if counted.contains(&true) {
                    self.breach(
                        file,
                        line,
                        "`part`, `fitted` and `printed` are for checks with a `source`".into(),
                    );
                }
                continue;
            }
            for why in of(check).into_iter().chain(self.not_chosen(check)) {
                self.breach(file, line, why);
            }
            self.once(paper, file, line, &check.name, check.part);
        }
        for (undecided, line) in scenario.undecided.iter().zip(lines("[[undecided]]")) {
            if let Some(why) = section(&undecided.source) {
                self.breach(file, line, why);
            }
            self.once(paper, file, line, &undecided.name, false);
        }
        for (published, line) in scenario.published.iter().zip(lines("[[published]]")) {
            if let Some(why) = section(&published.source) {
                self.breach(file, line, why);
            }
        }
    }

    fn breach(&mut self, file: &str, line: usize, why: String) {
        self.breaches.push(Breach { file: file.into(), line, why });
    }

    /// A fitted statement names a parameter of CHOSEN.md.
    fn not_chosen(&self, check: &Check) -> Option<String> {
        let (parameter, chosen) = (check.fitted.as_ref()?, self.chosen.as_ref()?);
        let unknown = !chosen.iter().any(|cell| cell == parameter);
        unknown.then(|| format!("fitted by `{parameter}`, which is not in the first table of docs/CHOSEN.md"))
    }

    /// A sentence is counted once; its parts follow it.
    fn once(&mut self, paper: &str, file: &str, line: usize, name: &str, part: bool) {
        let sentence = sentence(name);
        let of_paper = self.sentences.entry(paper.into()).or_default();
        let same = of_paper
            .iter()
            .find(|(other, _)| if part { *other == sentence } else { alike(other, &sentence) });
        let why = match (same, part) {
            (Some((_, place)), false) => {
                format!("counts a sentence twice, first in {place}; give it `part = true`")
            }
            (None, true) => "is a part of a sentence that no check before it quotes".to_string(),
            (Some(_), true) => return,
            (None, false) => {
                of_paper.push((sentence, format!("{file}:{line}")));
                return;
            }
        };
        self.breach(file, line, why);
    }
}

/// Whether two quotes are of the same sentence.
fn alike(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    short == long || short.len() >= FRAGMENT_MIN && long.contains(short)
}

/// What is quoted in a name.
fn quotes(name: &str) -> Vec<&str> {
    name.split('"').skip(1).step_by(2).collect()
}

/// What tells a sentence: its quotes, or the name of a cell, without case, signs and omissions.
pub(crate) fn sentence(name: &str) -> String {
    let quoted = quotes(name).join(" ");
    let text = if quoted.is_empty() { name } else { &quoted };
    let letters = text.replace("(...)", " ").to_lowercase();
    let words = letters.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// A source begins with the place in the paper.
fn section(source: &str) -> Option<String> {
    let placed = source.starts_with(|c: char| c.is_ascii_digit())
        || ["Abstract", "Table ", "Figure "].iter().any(|place| source.starts_with(place));
    (!placed).then(|| format!("source `{source}` does not begin with a section, a table or a figure"))
}

/// What a check breaks by itself.
fn of(check: &Check) -> Vec<String> {
    let mut breaches: Vec<String> =
        section(check.source.as_deref().unwrap_or_default()).into_iter().collect();
    let quoted = quotes(&check.name).join(" ").to_lowercase();
    let cell = quoted.is_empty();
    if cell && !check.name.starts_with("Table ") {
        breaches.push(format!("`{}` quotes no sentence, and is no cell of a table", check.name));
        return breaches;
    }
    let said = if cell { check.name.rsplit(": ").next().unwrap_or_default().to_string() } else { quoted };
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    match kind(check) {
        Err(why) => breaches.push(why),
        Ok(Kind::Order | Kind::Sign) if [1.2, 0.8].contains(&check.target) && !has(MUCH) => {
            breaches.push("an order by more than a fifth needs a word for it in the quote".into());
        }
        Ok(Kind::Order | Kind::Sign) => {}
        Ok(Kind::Value) if check.target == 1.0 && has(SAME) => {}
        Ok(Kind::Bound) if check.target == 1.0 && has(&["as good", "no worse"]) => {}
        Ok(kind) => breaches.extend(not_printed(check, kind, &said)),
    }
    breaches
}

/// The target is a printed number.
fn not_printed(check: &Check, kind: Kind, said: &str) -> Option<String> {
    let near = |value: f64| (value - check.target).abs() <= ROUNDING * check.target.abs();
    if let Some(printed) = &check.printed {
        let all = numbers(&check.name);
        let mut words = printed.split_whitespace();
        let (a, sign, b) = (words.next()?, words.next()?, words.next()?);
        let (a, b): (f64, f64) = (a.parse().ok()?, b.parse().ok()?);
        let result = match sign {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => f64::NAN,
        };
        let there = [a, b].iter().all(|n| all.iter().any(|number| number.value == *n));
        let wrong = !there || !near(result);
        return wrong.then(|| format!("`{printed}` does not stand in the name, or is not {}", check.target));
    }
    let gain = check.is == Comparison::GainAsPrinted;
    let found = numbers(said).iter().any(|number| number.readings(gain, kind).into_iter().any(near));
    let words = || NUMBERS.iter().any(|(word, value)| said.contains(word) && near(*value) && !gain);
    (!found && !words()).then(|| format!("the target {} is not printed in `{said}`", check.target))
}

/// A printed number.
struct Printed {
    value: f64,
    /// One unit of its last digit.
    last: f64,
    percent: bool,
    /// What stands behind it: K, M or G.
    scale: Option<char>,
}

impl Printed {
    /// The targets it can stand for.
    fn readings(&self, gain: bool, kind: Kind) -> Vec<f64> {
        let share = self.value / 100.0;
        if gain {
            return if self.percent {
                vec![1.0 + share, 1.0 - share, 1.0 / (1.0 + share), 1.0 / (1.0 - share)]
            } else {
                Vec::new()
            };
        }
        let mut all = vec![self.value];
        if self.percent {
            all.push(share);
            // "Within N %" of something is a bound of the quotient.
            if kind == Kind::Bound {
                all.extend([1.0 - share, 1.0 / (1.0 - share), 1.0 + share]);
            }
        }
        if self.value == 0.0 && kind == Kind::Bound {
            all.push(self.last / 2.0);
        }
        let power = match self.scale {
            Some('k') => 1,
            Some('m') => 2,
            Some('g') => 3,
            _ => 0,
        };
        if power > 0 {
            all.extend([self.value * 1000f64.powi(power), self.value * 1024f64.powi(power)]);
        }
        all
    }
}

/// The numbers of a text.
fn numbers(text: &str) -> Vec<Printed> {
    let text = text.to_lowercase();
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        let goes_on = |at: usize| {
            let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
            digit(at) || bytes.get(at).is_some_and(|b| b".,".contains(b)) && digit(at + 1)
        };
        while goes_on(at) {
            at += 1;
        }
        let digits = text[start..at].replace(',', "");
        let Ok(value) = digits.parse::<f64>() else { continue };
        let minus =
            text[..start].ends_with('-') && !text[..start - 1].ends_with(|c: char| c.is_alphanumeric());
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let rest = text[at..].trim_start_matches(['-', ' ']);
        found.push(Printed {
            value: if minus { -value } else { value },
            last: 10f64.powi(-i32::try_from(decimals).unwrap_or(0)),
            percent: rest.starts_with('%'),
            scale: rest.chars().next(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    fn broken(text: &str) -> Vec<String> {
        of(&toml::from_str(&format!("arm='a'\nsource='3, Figure 1'\n{text}")).unwrap())
    }

    #[test]
    fn a_target_is_a_number_of_the_quote() {
        let fine = |text: &str| assert!(broken(text).is_empty(), "{text}: {:?}", broken(text));
        fine("name='3: \"a factor of 2.5\"'\nis='~'\ntarget=2.5");
        fine("name='3: \"a 54% increase\"'\nover='b'\nis='gain~'\ntarget=1.54");
        fine("name='3: \"is 16% lower\"'\nover='b'\nis='gain~'\ntarget=0.84");
        fine("name='3: \"more than doubles\"'\nover='b'\nis='>'\ntarget=2");
        fine("name='3: \"within 5% of the best\"'\nover='b'\nis='>='\ntarget=0.95");
        fine("name='3: \"1,024 sessions\"'\nis='~'\ntarget=1024");
        fine("name='3: \"remains constant\"'\nover='b'\nis='~'\ntarget=1");
        fine("name='3: \"is higher\"'\nover='b'\nis='>'\ntarget=1");
        fine("name='3: \"of 20 and 21MB/s\"'\nis='~'\ntarget=41\nprinted='20 + 21'");
        fine("name='Table 1: 2 MB, evicted: 0.00'\nis='<'\ntarget=0.005");
        fine("name='Table 1: search, AMP: -4.67 %'\nis='~'\ntarget=-4.67");
        for wrong in [
            "name='3: \"a factor of 2.5\"'\nis='~'\ntarget=2.4",
            "name='3: \"is 16% lower\"'\nover='b'\nis='~'\ntarget=0.84",
            "name='3: \"increases rapidly\"'\nover='b'\nis='>'\ntarget=1.5",
            "name='3: \"increases\"'\nover='b'\nis='>'\ntarget=1.2",
            "name='3: \"in 94 of 96\"'\nis='=='\ntarget=94",
            "name='3: it rises'\nover='b'\nis='>'\ntarget=1",
            "name='3: \"of 20 and 21MB/s\"'\nis='~'\ntarget=42\nprinted='20 + 21'",
            "name='Table 1: 2 MB, evicted: 0.10'\nis='~'\ntarget=2",
        ] {
            assert_eq!(broken(wrong).len(), 1, "{wrong}");
        }
        let nowhere = "name='3: \"a factor of 2.5\"'\nis='~'\ntarget=2.5\narm='a'\nsource='the text'";
        assert_eq!(of(&toml::from_str(nowhere).unwrap()).len(), 1);
    }

    #[test]
    fn a_file_that_breaks_the_sheet_is_refused_with_its_line() {
        let (_, text) = scenario::all().iter().find(|(name, _)| *name == "libception-sizes").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let refused = |old: &str, new: &str| {
            assert!(text.contains(old), "{old}");
            std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
            let fault = scenario::find(path.to_str().unwrap()).map(|_| ()).unwrap_err();
            assert_eq!(fault.exit, Exit::Usage);
            fault.message
        };
        let line = |at: &str| 1 + text[..text.find(at).unwrap()].matches('\n').count();
        let published = line("[[published]]") + 1;
        let said = refused("source = \"Table 3\"", "source = \"the text\"");
        assert!(said.contains(&format!("mine.toml:{published}: source `the text`")), "{said}");
        let check = line("is = \"~\"") + 1;
        let said = refused("is = \"~\"", "is = \"~\"\nmargin = { few = 0.3, many = 0.3 }");
        assert!(said.contains(&format!("line {check}: ")) && said.contains("margin"), "{said}");
        let said = refused("is = \"~\"", "is = \"==\"");
        assert!(said.contains("within a fifth"), "{said}");
        std::fs::write(&path, text).unwrap();
        scenario::find(path.to_str().unwrap()).unwrap();
    }

    #[test]
    fn a_sentence_is_counted_once() {
        let mut sheet = Sheet::default();
        sheet.once("P", "a.toml", 3, "3: \"The more (...) it reads, the faster it is\": 1", false);
        sheet.once("P", "a.toml", 9, "3: \"the more it reads, the faster it is\": 2", true);
        assert!(sheet.breaches.is_empty());
        sheet.once("P", "b.toml", 5, "3: \"it reads, the faster it is\"", false);
        sheet.once("P", "b.toml", 8, "3: \"something else\"", true);
        sheet.once("Q", "c.toml", 1, "3: \"the more it reads, the faster it is\"", false);
        let said: Vec<String> = sheet.breaches.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("b.toml:5: counts a sentence twice, first in a.toml:3"), "{}", said[0]);
        assert!(said[1].starts_with("b.toml:8: is a part"), "{}", said[1]);
    }

    #[test]
    fn what_is_fitted_names_a_parameter_that_was_chosen() {
        let chosen = "# P\n\n## Chosen\n\n| paper | parameter |\n| --- | --- |\n| [P] | rates of traces | 5 |\n\n## Drawn\n";
        let sheet = Sheet { chosen: Some(parameters(chosen)), ..Sheet::default() };
        let check = |fitted: &str| {
            toml::from_str(&format!("name='n'\narm='a'\nis='~'\ntarget=1\nfitted='{fitted}'")).unwrap()
        };
        assert!(sheet.not_chosen(&check("rates of traces")).is_none());
        assert!(sheet.not_chosen(&check("rates")).is_some());
    }
}
