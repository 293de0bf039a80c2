//! A scenario's arm as arguments of `seekless-lab sim serve`.

use std::collections::BTreeMap;

use seekless_model::workload::closed::OtherDisks;
use seekless_model::workload::tree::FileOrder;

use crate::live::files::{XARGS_FILES, XARGS_PROGRAMS};
use crate::live::load::SEARCH_RUNS;
use crate::scenario::{Arm, Door, FileReader, FileSetBy, Load, Point, ProgramWork, Scenario, ServerKind};

/// Seconds a run at one rate takes where a scenario asks for a ramp.
const RAMP_STEP_S: (f64, f64) = (60.0, 240.0);

/// Why a scenario cannot run in the simulator; none if it can.
pub(crate) fn refusal(scenario: &Scenario) -> Option<String> {
    if let Some(why) = &scenario.sim.not {
        return Some(why.clone());
    }
    let files = matches!(scenario.load, Load::Files { .. });
    if files && scenario.arms.iter().any(|a| a.reader.and_then(programs).is_none()) {
        return Some("the simulator has no program that reads a tree ahead by itself".into());
    }
    if matches!(scenario.load, Load::Fio { .. }) {
        return Some("fio is a real program".into());
    }
    if matches!(scenario.load, Load::Downloads { .. }) {
        return Some("downloads in any order are simulated by `seekless-lab sim circus`".into());
    }
    if matches!(scenario.load, Load::Closed { preload: true, .. } | Load::Files { preload: true, .. }) {
        return Some("it measures what Seekless costs this machine's processor".into());
    }
    if scenario.arms.iter().any(|a| a.server == Some(ServerKind::Seekless)) {
        return Some("the simulator has no model of `seekless serve`".into());
    }
    if scenario.arms.iter().any(|a| a.file_set == Some(FileSetBy::Itself)) {
        return Some("the simulator has no program that reads ahead by itself".into());
    }
    if scenario.arms.iter().any(|a| a.neighbour.is_some()) {
        return Some("the simulator has no processor and no daemon that others could keep busy".into());
    }
    if scenario.arms.iter().any(|a| a.proved) {
        return Some("`seekless prove` asks a real daemon".into());
    }
    let faulty = |a: &Arm| !a.faults.is_empty() || a.no_daemon;
    if scenario.arms.iter().any(faulty) {
        return Some(
            "it lets things go wrong (faults, no daemon), which the simulator does not model".into(),
        );
    }
    None
}

/// What a reader of the report must know about how the scenario was understood.
pub(super) fn remarks(scenario: &Scenario) -> Vec<String> {
    let metadata = match &scenario.load {
        Load::Diff { .. } => "",
        _ => " no metadata is read,",
    };
    let mut remarks =
        vec![format!("simulated: no processor time is short,{metadata} no byte is moved or verified")];
    if matches!(scenario.load, Load::Ramp { .. }) {
        remarks.push(format!(
            "instead of a ramp, bisection over runs of {} s at constant rates: a ramp errs to the high side",
            RAMP_STEP_S.1
        ));
    }
    remarks
}

/// Options whose value is NAME=VALUE,...: the model's settings, and the policy's parameters.
const TABLES: [&str; 2] = ["--with", "--parameter"];

/// Arguments, each flag once and each name of a table once; what is put later wins.
#[derive(Default)]
struct Words {
    flags: Vec<(String, Option<String>)>,
    tables: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl Words {
    fn put(&mut self, flag: &str, value: impl ToString) {
        if let Some(table) = TABLES.into_iter().find(|table| *table == flag) {
            for pair in value.to_string().split(',') {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                self.set(table, name, value);
            }
            return;
        }
        self.flags.retain(|(f, _)| f != flag);
        self.flags.push((flag.into(), Some(value.to_string())));
    }

    fn switch(&mut self, flag: &str) {
        self.flags.retain(|(f, _)| f != flag);
        self.flags.push((flag.into(), None));
    }

    /// Sets one name of a table.
    fn set(&mut self, table: &'static str, name: &str, value: impl ToString) {
        self.tables.entry(table).or_default().insert(name.into(), value.to_string());
    }

    /// A setting of the model.
    fn with(&mut self, name: &str, value: impl ToString) {
        self.set("--with", name, value);
    }

    /// `--flag value` or `--switch`, as written in a scenario.
    fn extend(&mut self, words: &[String]) {
        let mut words = words.iter().peekable();
        while let Some(flag) = words.next() {
            match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => self.put(flag, value),
                None => self.switch(flag),
            }
        }
    }
}

/// Virtual time that a comparison, or the programs of a tree, may take: it ends with the last file. The
/// paper's longest comparison takes less than an hour.
const FILES_S_MAX: u32 = 86_400;

/// Commands whose runs are drawn by a `--seed`.
const SEEDED: [&str; 2] = ["pfc-table", "circus"];

/// The command line of one run, without the program and without `--json`.
pub(super) fn arguments(scenario: &Scenario, point: &Point, repetition: u32) -> Vec<String> {
    let arm = &point.arm;
    let mut line = vec!["sim".to_string()];
    if let Load::Command { command, .. } = &point.load {
        if command.first().is_some_and(|word| word == "plan") {
            line.clear();
        }
        line.extend(command.iter().cloned());
        let mut words = Words::default();
        if repetition > 0 && command.first().is_some_and(|word| SEEDED.contains(&word.as_str())) {
            words.put("--seed", 1 + 1000 * repetition);
        }
        words.extend(&scenario.sim.args);
        words.extend(&arm.sim);
        return finish(line, words);
    }
    line.push("serve".into());
    let mut words = Words::default();
    match &point.machine {
        Some(machine) => {
            line.extend(["--drive".into(), machine.drive.clone()]);
            words.put("--size", machine.size);
            words.put("--memory", machine.memory);
            words.put("--library", machine.library);
            words.put("--hd-share", machine.hd_share);
            words.put("--content", machine.content);
            if let Some(size) = machine.file_size {
                words.put("--file-size", size);
            }
            words.put("--link", machine.link);
            if matches!(machine.load, Load::Search { .. }) {
                words.with("cold-start", true);
            }
            words.put("--zipf", machine.zipf);
            words.put("--catalogue-seed", scenario.library.seed);
        }
        None => {
            // A drive of the arm's own stands for the scenario's.
            if !arm.sim.iter().any(|w| w == "--drive") {
                for disk in &scenario.disks {
                    let own = arm.drive.as_ref().map_or(&disk.drive, |own| &own.name);
                    line.extend(["--drive".into(), own.clone()]);
                }
            }
            words.put("--size", scenario.disks[0].size);
            words.put("--memory", scenario.memory);
            for pair in crate::live::disk::catalogue_args(scenario).chunks(2) {
                words.put(&pair[0], &pair[1]);
            }
        }
    }
    if let Some(set) = &arm.set {
        words.extend(&set.to_args());
    }
    if arm.other_disks != OtherDisks::Busy {
        words.with("other-disks", arm.other_disks.name());
    }
    server(&mut words, arm);
    engine(&mut words, arm);
    load(&mut words, &point.load, repetition);
    tree(&mut words, arm, &point.load);
    if arm.file_set.is_some() {
        words.with("file-set", true);
    }
    if arm.alone {
        words.with("nobody-reads", true);
    }
    if let Some(writer) = &arm.writer {
        words.with("writer", &writer.rate);
        words.with("writer-file", writer.file);
        if let Some(every) = writer.sync {
            words.with("writer-sync", every);
        }
        if let Some(cameras) = writer.cameras {
            words.with("cameras", cameras);
            words.with("segment", format!("{}s", writer.segment_s));
        }
        if let Some(missed) = writer.missed {
            words.with("missed", missed);
        }
    }
    words.extend(&scenario.sim.args);
    words.extend(&arm.sim);
    finish(line, words)
}

fn finish(mut line: Vec<String>, words: Words) -> Vec<String> {
    for (flag, value) in words.flags {
        line.push(flag);
        line.extend(value);
    }
    for (flag, pairs) in words.tables {
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        line.extend([flag.to_string(), pairs.join(",")]);
    }
    line
}

fn server(words: &mut Words, arm: &Arm) {
    words.put("--server", arm.server.unwrap_or(ServerKind::Builtin).name());
    words.put("--variant", arm.variant.name());
    if let Some(scheduler) = &arm.scheduler {
        words.put("--scheduler", scheduler);
    }
    if let Some(kb) = arm.read_ahead_kb {
        words.put("--read-ahead-kb", kb);
    }
    if let Some(kb) = arm.max_sectors_kb {
        words.with("max-sectors-kb", kb);
    }
}

fn engine(words: &mut Words, arm: &Arm) {
    let Some(mode) = arm.mode else { return };
    words.put("--mode", mode.word());
    if arm.door != Door::Shim {
        words.put("--door", arm.door.command());
    }
    words.put("--ahead", if arm.ahead { "on" } else { "off" });
    if let Some(prefetch) = arm.prefetch {
        words.put("--prefetch", prefetch);
    }
    if let Some(order) = arm.order {
        words.put("--order", order.word());
    }
    if let Some(queue) = arm.queue {
        words.put("--queue", queue);
    }
    if let Some(reads) = arm.in_flight {
        words.set("--parameter", "in-flight", reads);
    }
    if arm.answer_late {
        words.set("--parameter", "answer-late", true);
    }
    if arm.single_queue {
        words.set("--parameter", "single-queue", true);
    }
}

/// How the programs of a reader take the files of a tree: the number of programs, the files that each takes
/// at a time (`None`: all), and the order. `None`: the simulator has no such programs.
fn programs(reader: FileReader) -> Option<(u32, Option<u32>, FileOrder)> {
    match reader {
        FileReader::Xargs => Some((XARGS_PROGRAMS, Some(XARGS_FILES), FileOrder::Listed)),
        FileReader::Order => Some((XARGS_PROGRAMS, Some(XARGS_FILES), FileOrder::Disk)),
        FileReader::OrderOne => Some((1, Some(XARGS_FILES), FileOrder::Disk)),
        FileReader::PythonWalk => Some((1, None, FileOrder::Listed)),
        FileReader::OrderAhead
        | FileReader::Tar
        | FileReader::CatSet
        | FileReader::PythonOrder
        | FileReader::Restic => None,
    }
}

/// An arm's programs and the tree that they read.
fn tree(words: &mut Words, arm: &Arm, load: &Load) {
    let Load::Files { files, median, files_per_pack, pack, work, .. } = load else { return };
    let Some((programs, each, taking)) = arm.reader.and_then(programs) else { return };
    words.put("--load", "tree");
    words.put("--warmup", "0s");
    words.put("--duration", format!("{FILES_S_MAX}s"));
    words.with("files", files);
    words.with("median", median);
    words.with("files-per-pack", files_per_pack);
    words.with("pack", pack);
    words.put("--clients", programs);
    words.with("batch", each.unwrap_or(u32::MAX));
    words.with("taking", taking.name());
    words.with("fresh", true);
    if let Some(ProgramWork { start_ms, file_us, mb_s }) = work {
        words.with("start-time", format!("{start_ms}ms"));
        words.with("file-time", format!("{file_us}us"));
        words.with("work-rate", mb_s);
    }
}

fn load(words: &mut Words, load: &Load, repetition: u32) {
    words.put("--seed", 1 + 1000 * repetition);
    let mut times = |warmup_s: f64, duration_s: f64| {
        words.put("--warmup", format!("{warmup_s}s"));
        words.put("--duration", format!("{}s", warmup_s + duration_s));
    };
    match load {
        Load::Closed { clients, range, warmup_s, duration_s, popular, connections, link, .. } => {
            times(*warmup_s, *duration_s);
            if let Some(link) = link {
                words.with("closed-link", link);
            }
            words.put("--load", "closed");
            if *connections > 1 {
                words.put("--connections", connections);
            }
            if *popular {
                words.put("--pick", "zipf");
            }
            words.put("--clients", clients);
            words.put("--range", range);
        }
        Load::Handlers { clients, handler, warmup_s, duration_s } => {
            times(*warmup_s, *duration_s);
            words.put("--load", "handlers");
            words.put("--clients", clients);
            words.put("--handler", handler);
        }
        Load::Sessions { rate, warmup_s, duration_s } => {
            times(*warmup_s, *duration_s);
            words.put("--load", "sessions");
            words.put("--rate", rate);
        }
        Load::Ramp { from, to, link, .. } => {
            times(RAMP_STEP_S.0, RAMP_STEP_S.1);
            words.put("--load", "search");
            words.put("--rate", from);
            words.with("rate-max", to);
            if let Some(rates) = link {
                words.put("--link", rates);
            }
        }
        Load::Search { rate, rate_max, max_failed, precision, warmup_s, duration_s } => {
            times(*warmup_s, *duration_s);
            words.put("--load", "search");
            words.put("--rate", rate);
            words.with("rate-max", rate_max);
            words.put("--max-failed", max_failed);
            words.with("precision", precision);
            words.with("runs", SEARCH_RUNS);
        }
        Load::Diff { instances, files } => {
            words.put("--warmup", "0s");
            words.put("--duration", format!("{FILES_S_MAX}s"));
            words.put("--load", "diff");
            words.put("--clients", instances);
            words.with("files", files);
        }
        Load::Files { .. }
        | Load::Fio { .. }
        | Load::Broker { .. }
        | Load::Programs { .. }
        | Load::Downloads { .. }
        | Load::Readers { .. }
        | Load::Command { .. }
        | Load::Drawn {} => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn every_scenario_is_translated_or_refused_in_words() {
        let mut runs = 0;
        for (name, _) in scenario::all() {
            let (_, scenario) = scenario::find(name).unwrap();
            if let Some(why) = refusal(&scenario) {
                assert!(!why.is_empty() && !why.contains('\n'), "{name}: {why}");
                assert!(!scenario.sim.only, "{name} runs nowhere");
                continue;
            }
            runs += 1;
            for point in scenario.points() {
                let line = arguments(&scenario, &point, 0);
                assert!(line[0] == "sim" || line[0] == "plan", "{line:?}");
                let mut flags: Vec<&String> =
                    line.iter().filter(|w| w.starts_with("--") && *w != "--drive").collect();
                let count = flags.len();
                flags.sort();
                flags.dedup();
                assert_eq!(flags.len(), count, "{name}: a flag twice in {line:?}");
            }
        }
        assert!(runs > 10);
    }

    #[test]
    fn a_quick_run_has_the_options_of_its_section() {
        let (_, scenario) = scenario::find("circus-fig8").unwrap();
        let line = |s: Scenario| arguments(&s, &s.points()[0], 0).join(" ");
        assert!(line(scenario.clone()).ends_with("--trials 3 --with time=7200,until=0.05"));
        assert!(line(scenario.quickened()).ends_with("--trials 1 --with time=600,until=0.05"));
    }

    #[test]
    fn what_an_arm_says_itself_wins() {
        let mut words = Words::default();
        words.put("--memory", "1GiB");
        words.with("socket", "1MiB");
        words.extend(&["--memory", "4GiB", "--drawn", "--with", "socket=128KiB,cache=lru"].map(String::from));
        let line = finish(Vec::new(), words);
        assert_eq!(line, ["--memory", "4GiB", "--drawn", "--with", "cache=lru,socket=128KiB"]);
    }
}
