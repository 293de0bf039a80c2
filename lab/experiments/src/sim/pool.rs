//! `seekless-lab sim` command lines, several at a time: one queue for all scenarios of a call, so that no
//! processor waits for the longest run of each. What is asked for twice runs once: several figures show the
//! same experiments, and the same configuration gives the same answer, whatever the order of its options.
//! Tables of PFC's cases have most of their runs in common: those that wait are asked of one process
//! ([`TOGETHER`]). That one takes longest and goes first, so that no processor waits for it in the end; then
//! comes what depends on an answer ([`Pool::ask_next`]), as the rest of its scenario waits for it. Answers
//! may be kept in a folder ([`Answers`]).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use seekless_base::Fault;
use serde_json::Value;

use super::answers::Answers;

use crate::guard::Scratch;
use crate::process::run_json;
use crate::tools;

/// Longest one run may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The command whose `--and` takes the options of further ones, and gives a list.
const TOGETHER: [&str; 2] = ["sim", "pfc-table"];

/// Where a search begins. It changes how long the search takes, not what is asked for.
pub(super) const EXPECTED: &str = "--expected";

/// What a command line gave.
#[derive(Debug)]
pub(crate) struct CommandResult {
    /// Its JSON.
    pub(super) value: Value,
    /// How long it took; its part where one process gave several answers.
    pub(super) seconds: f64,
}

/// The queue, its answers and what waits for them.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    news: Condvar,
    kept: Option<Answers>,
}

/// What a command line asks for: its command, then its options by name, each with its values. Options given
/// several times are lists, and stay in their order.
type Asked = Vec<Vec<String>>;

fn asked(line: &[String]) -> Asked {
    let mut parts: Asked = Vec::new();
    for word in line {
        match parts.last_mut() {
            Some(part) if !word.starts_with("--") => part.push(word.clone()),
            _ => parts.push(vec![word.clone()]),
        }
    }
    parts.retain(|part| part[0] != EXPECTED);
    let name = |part: &Vec<String>| part[0].split('=').next().map(str::to_string);
    if let Some((_, options)) = parts.split_first_mut() {
        options.sort_by_key(name);
    }
    parts
}

fn may_be_together(line: &[String]) -> bool {
    line.len() >= TOGETHER.len() && line.iter().zip(TOGETHER).all(|(word, with)| word == with)
}

/// What its traces are drawn by: tables that differ in it have no run in common.
fn drawn_by(line: &[String]) -> Vec<&String> {
    let mut words: Vec<&String> = line.iter().filter(|word| *word == "--drawn").collect();
    words.extend(line.windows(2).filter(|pair| pair[0] == "--seed").map(|pair| &pair[1]));
    words
}

/// One command line for several.
fn together(lines: &[Vec<String>]) -> Vec<String> {
    let mut line = lines[0].clone();
    for other in &lines[1..] {
        line.push(format!("--and={}", other[TOGETHER.len()..].join(" ")));
    }
    line
}

/// The answers to these command lines.
fn each(value: Value, lines: usize) -> Result<Vec<Value>, Fault> {
    match value {
        value if lines == 1 => Ok(vec![value]),
        Value::Array(values) if values.len() == lines => Ok(values),
        _ => Err(Fault::failed(format!("the simulator: not {lines} answers to {lines} questions"))),
    }
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Vec<String>>,
    /// By what was asked for; none where it is queued or runs.
    answers: BTreeMap<Asked, Option<Arc<CommandResult>>>,
    failed: Option<Fault>,
    closed: bool,
}

impl PoolState {
    /// Whether this command line is new. From now on it counts as asked.
    fn is_new(&mut self, line: &[String]) -> bool {
        match self.answers.entry(asked(line)) {
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
            Entry::Occupied(_) => false,
        }
    }
}

/// Lets the workers go, whatever way the work ends.
struct Closing<'a>(&'a Pool);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.news.notify_all();
    }
}

impl Pool {
    /// Does `work` beside `threads` workers. `answers`: a folder whose answers are used, and which gets all.
    ///
    /// # Errors
    /// Those of `work`; no folder for the workers' output, or for the answers.
    pub(crate) fn with<T>(
        threads: usize,
        answers: Option<PathBuf>,
        work: impl FnOnce(&Pool) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let scratch = Scratch::new()?;
        let pool = Pool { kept: answers.map(Answers::new).transpose()?, ..Pool::default() };
        std::thread::scope(|scope| {
            let _closing = Closing(&pool);
            for _ in 0..threads {
                scope.spawn(|| pool.serve(scratch.path()));
            }
            work(&pool)
        })
    }

    /// Queues command lines that are not known yet.
    pub(super) fn ask(&self, lines: impl IntoIterator<Item = Vec<String>>) {
        let mut state = self.state();
        for line in lines {
            if state.is_new(&line) && !self.is_kept(&mut state, &line) {
                state.queue.push_back(line);
            }
        }
        self.news.notify_all();
    }

    /// Queues a command line before all others, unless it is known.
    pub(super) fn ask_next(&self, line: Vec<String>) {
        let mut state = self.state();
        if state.is_new(&line) && !self.is_kept(&mut state, &line) {
            state.queue.push_front(line);
        }
        self.news.notify_all();
    }

    /// Takes a kept answer, if there is one.
    fn is_kept(&self, state: &mut PoolState, line: &[String]) -> bool {
        let asked = asked(line);
        let Some((value, seconds)) = self.kept.as_ref().and_then(|kept| kept.get(&asked)) else {
            return false;
        };
        state.answers.insert(asked, Some(Arc::new(CommandResult { value, seconds })));
        true
    }

    /// Waits for the answer to a command line, which must have been asked.
    ///
    /// # Errors
    /// That of the first run that failed, whichever it was.
    pub(super) fn answer(&self, line: &[String]) -> Result<Arc<CommandResult>, Fault> {
        let asked = asked(line);
        let mut state = self.state();
        loop {
            match (state.answers.get(&asked), &state.failed) {
                (Some(Some(answer)), _) => return Ok(answer.clone()),
                (_, Some(fault)) => return Err(fault.clone()),
                (None, _) => return Err(Fault::failed("a run nobody asked for")),
                (Some(None), None) => {
                    state = self.news.wait(state).unwrap_or_else(|e| e.into_inner());
                }
            }
        }
    }

    /// A worker: runs what is queued until the pool is closed.
    fn serve(&self, scratch: &Path) {
        while let Some(lines) = self.next() {
            let begun = Instant::now();
            let value = tools::laboratory().and_then(|program| {
                let mut command = Command::new(program);
                command.args(together(&lines)).arg("--json");
                run_json("the simulator", command, PATIENCE, scratch)
            });
            let seconds = begun.elapsed().as_secs_f64() / lines.len() as f64;
            let values = value.and_then(|value| each(value, lines.len())).and_then(|values| {
                let kept =
                    self.kept.iter().flat_map(|kept| lines.iter().zip(&values).map(move |a| (kept, a)));
                for (kept, (line, value)) in kept {
                    kept.put(&asked(line), value, seconds)?;
                }
                Ok(values)
            });
            let mut state = self.state();
            match values {
                Ok(values) => {
                    for (line, value) in lines.iter().zip(values) {
                        state.answers.insert(asked(line), Some(Arc::new(CommandResult { value, seconds })));
                    }
                }
                // The others' answers would be thrown away.
                Err(fault) => {
                    state.queue.clear();
                    state.failed.get_or_insert(fault);
                }
            }
            self.news.notify_all();
        }
    }

    /// The next line of the queue, with those that one process runs together with it.
    fn next(&self) -> Option<Vec<Vec<String>>> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let first = state.queue.iter().position(|line| may_be_together(line)).unwrap_or(0);
            if let Some(line) = state.queue.remove(first) {
                let mut lines = vec![line];
                if may_be_together(&lines[0]) {
                    let waiting = std::mem::take(&mut state.queue).into_iter();
                    let of = drawn_by(&lines[0]);
                    let (same, others): (Vec<_>, _) =
                        waiting.partition(|line| may_be_together(line) && drawn_by(line) == of);
                    lines.extend(same);
                    state.queue = others.into();
                }
                return Some(lines);
            }
            state = self.news.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn a_line_is_queued_once_and_the_first_failure_ends_the_wait_for_all() {
        let pool = Pool::default();
        pool.ask([of("a"), of("b"), of("a")]);
        pool.ask([of("b")]);
        assert_eq!(pool.state().queue.len(), 2);
        assert!(pool.answer(&of("c")).unwrap_err().message.contains("nobody asked"));
        pool.state().failed = Some(Fault::failed("a broke"));
        assert_eq!(pool.answer(&of("b")).unwrap_err().message, "a broke");
    }

    #[test]
    fn the_order_of_options_does_not_matter_but_that_of_a_list_does() {
        let pool = Pool::default();
        pool.ask([
            of("sim serve --drive a --drive b --cold-start --rate 4"),
            of("sim serve --drive a --drive b --cold-start --rate 4 --expected 17.5"),
            of("sim serve --cold-start --rate 4 --drive a --drive b"),
            of("sim serve --rate 4 --drive b --cold-start --drive a"),
            of("sim serve --drive a --drive b --cold-start"),
            of("sim node --drive a --drive b --cold-start --rate 4"),
            of("sim serve --drive a --drive b --cold-start --rate 5"),
            of("sim serve --x=1 --x=2"),
            of("sim serve --x=2 --x=1"),
        ]);
        assert_eq!(pool.state().queue.len(), 7);
    }

    #[test]
    fn tables_that_wait_are_asked_of_one_process_first() {
        let pool = Pool::default();
        pool.ask([
            of("sim serve --rate 4"),
            of("sim pfc-table --scale 0.1"),
            of("sim serve --rate 5"),
            of("sim pfc-table"),
            of("sim pfc-table --drawn --seed 2"),
        ]);
        let lines = pool.next().unwrap();
        assert_eq!(together(&lines), ["sim", "pfc-table", "--scale", "0.1", "--and="]);
        assert_eq!(
            pool.next().unwrap(),
            [of("sim pfc-table --drawn --seed 2")],
            "it shares no run with those"
        );
        assert_eq!(pool.next().unwrap(), [of("sim serve --rate 4")]);
        pool.ask_next(of("sim serve --rate 6"));
        pool.ask_next(of("sim serve --rate 4"));
        assert_eq!(pool.next().unwrap(), [of("sim serve --rate 6")]);
        assert_eq!(pool.next().unwrap(), [of("sim serve --rate 5")]);
        let list = serde_json::json!([1, 2, 3]);
        assert_eq!(each(list.clone(), 3).unwrap(), [1, 2, 3]);
        assert_eq!(each(list.clone(), 1).unwrap(), vec![list.clone()]);
        assert!(each(list, 2).unwrap_err().message.contains("not 2 answers"));
    }

    #[test]
    fn what_is_kept_is_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let kept = || Some(Answers::new(dir.path().to_path_buf()).unwrap());
        let line = of("sim serve --rate 4 --expected 3");
        kept().unwrap().put(&asked(&line), &serde_json::json!(7), 1.0).unwrap();
        let pool = Pool { kept: kept(), ..Pool::default() };
        pool.ask([of("sim serve --rate 4"), of("sim serve --rate 5")]);
        pool.ask_next(line.clone());
        assert_eq!(pool.answer(&line).unwrap().value, 7);
        assert_eq!(pool.next().unwrap(), [of("sim serve --rate 5")]);
    }

    #[test]
    fn workers_go_when_the_work_is_done_whatever_came_of_it() {
        let broken: Result<(), Fault> = Pool::with(2, None, |_| Err(Fault::usage("no")));
        assert_eq!(broken.unwrap_err().message, "no");
    }
}
