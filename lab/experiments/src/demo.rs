//! The demonstration: one scenario, chosen to be shown, and its results in a terminal.

use std::path::Path;

use seekless_base::Fault;

use crate::report::{bar_chart, comparison, number};
use crate::results::Results;
use crate::scenario::{Scenario, ServerKind};
use crate::{live, terminal, tools};

/// Runs it, adapted to what is here: the built-in server where nginx is not, no kernel tuning without root.
pub(crate) fn run(out: &Path) -> Result<Results, Fault> {
    let nginx = tools::find("nginx");
    let text = include_str!("demo.toml")
        .replace("SERVER", if nginx.is_ok() { "nginx" } else { "A plain file server" });
    let mut scenario = Scenario::parse(&text, "demo")?;
    if let Err(fault) = nginx {
        scenario.notes.push(format!("The built-in file server stands in: {fault}."));
        scenario.arms.iter_mut().for_each(|arm| arm.server = Some(ServerKind::Builtin));
    }
    if !rustix::process::geteuid().is_root() {
        scenario.notes.push(
            "Without root: no block device, so no kernel tuning; no memory limit unless a control group is delegated.".into(),
        );
        scenario.arms.retain(|arm| arm.read_ahead_kb.is_none());
        let arms: Vec<String> = scenario.arms.iter().map(|a| a.name.clone()).collect();
        scenario.checks.retain(|check| check.operands().iter().all(|(arm, _)| arms.contains(arm)));
    }
    live::run("demo", &scenario, false, out)
}

/// Table, bars, what was left out, and the report's path last.
pub(crate) fn text(results: &Results, out: &Path) -> String {
    let width = terminal::width();
    let main = results.scenario.main_metric();
    let of = |arm: &str| results.median(arm, None, main);
    let mut text = format!(
        "\n{}\n\n{}\n\n{}\n",
        results.scenario.title,
        comparison(results, width),
        bar_chart(results, width)
    );
    let over = |arm| Some(format!("{} times {arm}", number(of("with Seekless")? / of(arm)?)));
    let others = ["best kernel tuning", "Linux 6.17 and later", "before Linux 6.17"];
    let ratios: Vec<String> = others.into_iter().filter_map(over).collect();
    if !ratios.is_empty() {
        text += &format!("with Seekless: {}, from the same disk.\n", ratios.join(", "));
    }
    for note in results.scenario.notes.iter().skip(3).chain(&results.remarks) {
        text += &format!("note: {note}\n");
    }
    for check in results.checks.iter().filter(|c| !c.pass) {
        text += &format!("does not hold: {}\n", check.name);
    }
    text + &format!("report: {}\n", out.join("report.html").display())
}
