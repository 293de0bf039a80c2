//! `/etc/seekless.toml`: a test for each rule of precedence; for each mistake one line with file, line and
//! key.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Daemon, shim};
use rustix::process::Signal;
use seekless_base::Exit;
use serde_json::Value;
use tempfile::TempDir;

const SEEKLESS: &str = env!("CARGO_BIN_EXE_seekless");

/// A configuration file in a folder of its own.
struct Config {
    dir: TempDir,
    file: PathBuf,
}

impl Config {
    fn new(text: impl AsRef<[u8]>) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seekless.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        Config { dir, file }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(SEEKLESS);
        command.env("SEEKLESS_CONFIG", &self.file).env_remove("SEEKLESS_SOCKET").env_remove("SEEKLESS_SHIM");
        command.env("SEEKLESS_STATE", self.dir.path());
        command
    }

    fn seekless(&self, words: &str) -> Output {
        self.command().args(words.split_whitespace()).output().unwrap()
    }

    /// What `config --show` says of an option: its value, and where it is from.
    fn shown(&self, command: &str, option: &str, words: &str) -> (Value, String) {
        let mut show = self.command();
        show.args(["config", "--show"]).args(command.split(' ')).args(["--json", "-", "--"]);
        of(&show.args(words.split_whitespace()).output().unwrap(), option)
    }

    /// The line in which a command says what is wrong with the file, without the name of its folder.
    fn refused(&self, words: &str, status: Exit) -> String {
        let output = self.seekless(words);
        assert_eq!(output.status.code(), Some(status as i32), "{output:?}");
        let line = one_line(&output);
        line.replace(self.dir.path().to_str().unwrap(), "")
    }
}

fn of(output: &Output, option: &str) -> (Value, String) {
    assert!(output.status.success(), "{output:?}");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let one = all.iter().find(|one| one["option"] == option).unwrap_or_else(|| panic!("{option}: {all:?}"));
    (one["value"].clone(), one["from"].as_str().unwrap().to_string())
}

fn one_line(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_string()
}

fn at(config: &Config, line: usize) -> String {
    format!("{}:{line}", config.file.display())
}

#[test]
fn the_command_line_wins_over_the_section_and_that_over_all() {
    let config =
        Config::new("[all]\nbudget = \"1GiB\"\nlongest-wait = \"2s\"\n[daemon]\nbudget = \"2GiB\"\n");
    assert_eq!(config.shown("daemon", "budget", "--budget 3GiB"), ("3GiB".into(), "command line".into()));
    assert_eq!(config.shown("daemon", "budget", ""), ("2GiB".into(), at(&config, 5)));
    assert_eq!(config.shown("watch", "budget", ""), ("1GiB".into(), at(&config, 2)));
    assert_eq!(config.shown("daemon", "longest-wait", ""), ("2s".into(), at(&config, 3)));
    assert_eq!(config.shown("daemon", "queue", ""), ("4096".into(), "default".into()));
    assert_eq!(config.shown("daemon", "metrics", ""), (Value::Null, "default".into()));
}

#[test]
fn the_environment_wins_over_the_file() {
    let config = Config::new("[all]\nsocket = \"/of/the/file\"\n");
    assert_eq!(config.shown("daemon", "socket", ""), ("/of/the/file".into(), at(&config, 2)));
    let mut show = config.command();
    show.env("SEEKLESS_SOCKET", "/of/the/environment").args(["config", "--show", "daemon", "--json", "-"]);
    let shown = of(&show.output().unwrap(), "socket");
    assert_eq!(shown, ("/of/the/environment".into(), "environment (SEEKLESS_SOCKET)".into()));
    // And so does the command itself.
    let mut status = config.command();
    status.env("SEEKLESS_SOCKET", "/of/the/environment").args(["daemon", "status"]);
    assert!(one_line(&status.output().unwrap()).contains("/of/the/environment"));
    assert!(one_line(&config.seekless("daemon status")).contains("/of/the/file"));
    assert!(one_line(&config.seekless("daemon status --socket /of/the/line")).contains("/of/the/line"));
}

#[test]
fn a_command_runs_with_what_the_file_says() {
    // The value is refused behind the parser, so that it is seen to have come as far as that.
    let config = Config::new("[daemon]\n\nbudget = \"1MiB\"\n");
    let line = config.refused("daemon", Exit::Usage);
    assert!(line.contains("--budget 1MiB is out of range"), "{line}");
    assert!(line.ends_with("(--budget: /seekless.toml:3)"), "{line}");
    let line = config.refused("daemon --budget 2MiB", Exit::Usage);
    assert!(line.contains("--budget 2MiB is out of range") && !line.contains("seekless.toml"), "{line}");
}

#[test]
fn switches_lists_numbers_and_folders() {
    let config = Config::new(
        "[all]\ninclude-ssd = true\nslow-start = true\n\
         [watch]\ndirs = [\"/srv/a\", \"/srv/b\"]\nkeep-metadata = [\"/\", \"/tmp\"]\nslow-start = false\n\
         queue = 16\nshare = 0.25\nsocket-mode = 0o660\njson = true\n",
    );
    for (option, value, line) in [
        ("include-ssd", "true", 2),
        ("dirs", "/srv/a, /srv/b", 5),
        ("keep-metadata", "/, /tmp", 6),
        ("queue", "16", 8),
        ("share", "0.25", 9),
        ("socket-mode", "0o660", 10),
        ("json", "-", 11),
    ] {
        assert_eq!(config.shown("watch", option, ""), (value.into(), at(&config, line)), "{option}");
    }
    // It moved, and works once more.
    assert_eq!(config.shown("watch", "parameter", ""), ("slow-start=false".into(), at(&config, 7)));
    assert_eq!(config.shown("watch", "dirs", "/srv/c"), ("/srv/c".into(), "command line".into()));
}

#[test]
fn an_option_that_is_gone_is_ignored_with_one_warning() {
    for (option, value) in [("next-files", "true"), ("hold", "\"off\"")] {
        let config = Config::new(format!("[daemon]\n{option} = {value}\nqueue = 16\n"));
        for (words, from) in [
            ("config --check".into(), format!("seekless.toml:2: daemon.{option}: ")),
            (format!("--config= daemon --{option} on status --help"), String::new()),
            (format!("--config= daemon --{option}=off status --help"), String::new()),
        ] {
            let output = config.seekless(&words);
            let told = String::from_utf8(output.stderr).unwrap();
            let told: Vec<&str> = told.lines().collect();
            let warning = format!("--{option} has no effect; leave it out; the next release refuses it");
            assert!(output.status.success() && told.len() == 1, "{words}: {told:?}");
            assert!(told[0].contains(&from) && told[0].ends_with(&warning), "{words}: {told:?}");
        }
    }
}

#[test]
fn an_option_of_the_file_that_contradicts_the_command_line_is_dropped() {
    let config = Config::new("[watch]\nbitrates = \"/not/there\"\nno-socket = true\n");
    assert_eq!(config.shown("watch", "bitrates", "--bitrate 1000").0, Value::Null);
    assert_eq!(config.shown("watch", "bitrate", "--bitrate 1000"), ("1000".into(), "command line".into()));
    assert_eq!(config.shown("watch", "no-socket", "--socket /x").0, "false");
    // A section's is stronger than that of all in the same way.
    let config = Config::new("[all]\nbitrate = 1000\n[watch]\nbitrates = \"/not/there\"\n");
    assert_eq!(config.shown("watch", "bitrate", "").0, Value::Null);
    assert_eq!(config.shown("watch", "bitrates", "").1, at(&config, 4));
}

#[test]
fn the_words_of_the_command_that_run_runs_are_its_own() {
    let config = Config::new("[run]\nbudget = \"1MiB\"\n");
    let shown = config.shown("run", "budget", "echo --budget 2GiB --config /not/there");
    assert_eq!(shown, ("1MiB".into(), at(&config, 2)));
}

/// Its daemon has the options of `run`, not those of the daemon that all share.
#[test]
fn a_daemon_of_run_reads_no_file() {
    let config = Config::new("[daemon]\nbudget = \"1MiB\"\n[run]\nbudget = \"64MiB\"\n");
    let run = config.command().arg("run").arg("--shim").arg(shim()).arg("true").output().unwrap();
    assert!(run.status.success(), "{run:?}");
    config.refused("daemon", Exit::Usage);
}

/// The worker of `watch` is started with the words in force, so that it needs the file no more.
#[test]
fn a_worker_has_the_options_of_the_file() {
    let config = Config::new("[watch]\ndirs = [\"/not/there\"]\nno-socket = true\n");
    let watch = config.command().arg("watch").output().unwrap();
    let said = String::from_utf8(watch.stderr).unwrap();
    assert!(!watch.status.success() && said.contains("cannot watch"), "{said}");
}

#[test]
fn a_daemon_that_is_reloaded_has_the_options_of_the_file_as_it_is_now() {
    let config = Config::new("[daemon]\nmode = \"track\"\nprefetch = \"2MiB\"\n");
    let socket = config.dir.path().join("daemon.sock");
    let mut command = config.command();
    command.args(["daemon", "--socket"]).arg(&socket);
    let mut daemon = Daemon::of(command, socket);
    let mode = |daemon: &Daemon| daemon.status().map(|status| status["mode"].clone());
    let soon = |what: &dyn Fn() -> bool| {
        (0..1000).any(|_| {
            what() || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                false
            }
        })
    };
    assert!(soon(&|| mode(&daemon) == Some("track".into())), "{:?}", daemon.status());
    fs::write(&config.file, "[daemon]\nmode = \"serialise\"\nprefetch = \"2MiB\"\n").unwrap();
    daemon.signal(Signal::USR2);
    assert!(soon(&|| mode(&daemon) == Some("serialise".into())), "{:?}", daemon.status());
    assert!(daemon.ended());
    // The successor is not our child.
    let pid = daemon.status().unwrap()["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
}

#[test]
fn each_mistake_is_one_line_with_file_line_and_key() {
    for (text, line) in [
        (
            "[daemon]\nbugdet = 1\n",
            ":2: daemon.bugdet: seekless daemon has no such option; seekless config --show daemon lists all",
        ),
        ("[all]\n\n\ncolour = 1\n", ":4: all.colour: no command has such an option"),
        ("budget = 1\n", ":1: budget: it is in no section; write it below [all]"),
        ("[demon]\nbudget = 1\n", ":1: demon: there is no such section"),
        ("[sim]\n", ":1: sim: there is no such section"),
        ("[daemon]\nparent = 1\n", ":2: daemon.parent: seekless daemon has no such option"),
        ("[daemon]\nconfig = \"x\"\n", ":2: daemon.config: seekless daemon has no such option"),
        ("[all]\ndirs = [\"/\"]\n", ":2: all.dirs: no command has such an option"),
        ("[daemon]\nbudget = true\n", ":2: daemon.budget: wrong type; write a value"),
        ("[daemon]\nbudget = [\"1GiB\"]\n", ":2: daemon.budget: wrong type; write one value"),
        ("[daemon]\nbudget = 2026-01-01\n", ":2: daemon.budget: wrong type; write a string"),
        ("[daemon]\n[daemon.budget]\n", ":2: daemon.budget: wrong type; write a string"),
        ("[daemon]\ninclude-ssd = \"yes\"\n", ":2: daemon.include-ssd: wrong type; write true or false"),
        ("[daemon]\nbudget = \"much\"\n", ":2: daemon.budget: invalid value 'much' for '--budget <SIZE>'"),
        ("[daemon]\nqueue = 0\n", ":2: daemon.queue: invalid value '0' for '--queue <N>': write 1 to 65536"),
        ("[all]\nconnections = 0\n", ":2: all.connections: invalid value '0'"),
        ("[disk.tune]\napply = 1\n", ":2: disk.tune.apply: wrong type; write true or false"),
        ("[watch]\ndirs = [\"--help\"]\n", ":2: watch.dirs: --help would be an option; write ./--help"),
        (
            "[watch]\nbitrate = 1000\nbitrates = \"/x\"\n",
            ":3: watch.bitrates: contradicts bitrate in line 2; leave one of them out",
        ),
        ("[daemon]\nbudget = \"1GiB\"\nbudget = \"2GiB\"\n", ":3: not TOML: duplicate key"),
        ("[daemon\n", ":1: not TOML: "),
    ] {
        let config = Config::new(text);
        // Whichever command reads it: nothing is started.
        for words in ["daemon", "run true", "config --check"] {
            let said = config.refused(words, Exit::Usage);
            assert!(said.starts_with(&format!("seekless: /seekless.toml{line}")), "{text}: {said}");
        }
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_line() {
    let config = Config::new(b"[daemon]\nsocket = \"\xff\"\n");
    assert_eq!(config.refused("daemon", Exit::Usage), "seekless: /seekless.toml:2: the text is not UTF-8");
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    for (mode, ok) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false), (0o666, false)] {
        let config = Config::new("[daemon]\n");
        fs::set_permissions(&config.file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(config.seekless("config --check").status.success(), ok, "{mode:o}");
        if !ok {
            let line = config.refused("daemon", Exit::Usage);
            assert!(line.contains("/seekless.toml: other users may write to it"), "{line}");
        }
    }
}

#[test]
fn a_file_of_another_user_is_refused() {
    let config = Config::new("[daemon]\n");
    if std::os::unix::fs::chown(&config.file, Some(65_534), None).is_err() {
        return println!("skipped: only root gives a file to another user");
    }
    let line = config.refused("daemon", Exit::Usage);
    assert!(line.contains("/seekless.toml: it belongs to user 65534"), "{line}");
}

#[test]
fn only_a_regular_file_of_a_bounded_length_is_read() {
    let config = Config::new("");
    fs::remove_file(&config.file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &config.file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let line = config.refused("daemon", Exit::Usage);
    assert!(line.contains("not a regular file; name a configuration file"), "{line}");
    let config = Config::new("# long\n".repeat(200_000));
    assert!(config.refused("daemon", Exit::Usage).contains("longer than 1 MiB"));
}

#[test]
fn a_named_file_must_be_there_and_an_empty_name_reads_none() {
    let config = Config::new("[demon]\n");
    let missing = config.refused("daemon --config /not/there", Exit::Missing);
    assert_eq!(missing, "seekless: /not/there: there is no such configuration file");
    // Before the command's name as well, and over the variable.
    let missing = config.refused("--config=/not/there daemon", Exit::Missing);
    assert!(missing.contains("/not/there"), "{missing}");
    for words in ["config --check --config=", "config --show daemon --config=", "--config= daemon --help"] {
        assert!(config.seekless(words).status.success(), "{words}");
    }
    let none = config.command().env("SEEKLESS_CONFIG", "").args(["config", "--check"]).output().unwrap();
    assert_eq!(String::from_utf8(none.stdout).unwrap(), "no configuration file is read\n");
    // The file of everybody need not be there.
    if !Path::new("/etc/seekless.toml").exists() {
        let usual =
            config.command().env_remove("SEEKLESS_CONFIG").args(["config", "--check"]).output().unwrap();
        let line = "/etc/seekless.toml: there is no such file; the defaults apply\n";
        assert_eq!(String::from_utf8(usual.stdout).unwrap(), line);
    }
}

#[test]
fn help_and_pages_need_no_file() {
    let config = Config::new("[demon]\n");
    for words in
        ["--help", "daemon --help", "daemon -h", "--version", "completions bash", "man", "config --help"]
    {
        assert!(config.seekless(words).status.success(), "{words}");
    }
}

#[test]
fn check_says_what_is_right() {
    let config =
        Config::new("[all]\nbudget = \"1GiB\"\n[serve]\nlisten = \"127.0.0.1:80\"\ndirs = [\"/srv\"]\n");
    let file = config.file.display();
    let said = String::from_utf8(config.seekless("config --check").stdout).unwrap();
    assert_eq!(said, format!("{file}: no mistake, settings: 3\n"));
    let json: Value =
        serde_json::from_slice(&config.seekless(&format!("config --check {file} --json -")).stdout).unwrap();
    assert_eq!((&json["settings"], &json["exists"]), (&3.into(), &true.into()));
    assert_eq!(json["file"], file.to_string());
}

#[test]
fn show_lists_all_commands_or_one_as_text() {
    let config = Config::new("[daemon]\nbudget = \"2GiB\"\n");
    let said = String::from_utf8(config.seekless("config --show").stdout).unwrap();
    for heading in ["[run]\n", "[daemon]\n", "[daemon.status]\n", "[serve]\n", "[disk.tune]\n"] {
        assert!(said.contains(heading), "{heading}: {said}");
    }
    let said = String::from_utf8(config.seekless("config --show daemon").stdout).unwrap();
    let line = said.lines().find(|line| line.starts_with("budget ")).unwrap();
    assert!(line.contains(" 2GiB ") && line.ends_with(&at(&config, 2)), "{line}");
    assert!(!said.contains("[run]"), "{said}");
    let wrong = config.refused("config --show nosuch", Exit::Usage);
    assert!(wrong.contains("--show nosuch: there is no such command"), "{wrong}");
    let wrong = config.refused("config --show daemon -- --bugdet 5", Exit::Usage);
    assert!(wrong.contains("unexpected argument '--bugdet'"), "{wrong}");
    let wrong = config.refused("config", Exit::Usage);
    assert!(wrong.contains("--show"), "{wrong}");
}

#[test]
fn a_pair_of_options_of_which_the_file_has_one_is_refused_with_its_place() {
    let config = Config::new("[serve]\ntls-cert = \"/x\"\ndirs = [\"/\"]\n");
    let line = config.refused("serve", Exit::Usage);
    assert!(line.contains("--tls-key"), "{line}");
}

#[test]
fn help_shows_so_many_options_at_most() {
    let config = Config::new("");
    for (command, most) in [("run", 15), ("daemon", 20), ("watch", 20), ("observe", 20), ("serve", 25)] {
        let help = String::from_utf8(config.seekless(&format!("{command} --help")).stdout).unwrap();
        let shown = help.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with("--") || line.starts_with("-h, --")
        });
        assert!(shown.count() <= most, "{help}");
        assert!(help.contains(&format!("`seekless config --show {command}` lists them")), "{help}");
        // What help leaves out is in the list of options, and still taken.
        let (value, _) = config.shown(command, "size-max", "");
        assert_eq!(value, "32MiB");
    }
    // And described in the manual.
    let dir = tempfile::tempdir().unwrap();
    assert!(config.command().args(["man", "--dir"]).arg(dir.path()).status().unwrap().success());
    let page = fs::read_to_string(dir.path().join("seekless-daemon.1")).unwrap();
    assert!(page.contains("score\\-deflation\\-factor") || page.contains("score-deflation-factor"), "{page}");
}

/// The example that the packages have says only what is true.
#[test]
fn the_example_in_the_packages_is_right() {
    let example =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/seekless.toml")).unwrap();
    let check = |text: String| {
        let said = Config::new(&text).seekless("config --check");
        assert!(said.status.success(), "{said:?}\n{text}");
    };
    // Whatever line is made valid.
    let uncommented: Vec<&str> = example
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|rest| rest.contains(" = ") && !rest.starts_with(' '))
                .unwrap_or(line)
        })
        .collect();
    check(example.clone());
    check(uncommented.join("\n"));
    assert!(uncommented.iter().filter(|line| line.contains(" = ")).count() >= 10, "{uncommented:?}");
}
