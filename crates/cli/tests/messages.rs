//! `docs/MESSAGES.md` has every warning and error of the running parts, and no other.
//!
//! The sources are read as text: the first words of each log line, the words of each error that ends a
//! command, the code of each finding of the doctor. `{...}` in a format string is `…` on the page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What every command says, crates whose messages people on call see, and the parts of `http` that belong to
/// `serve`.
const SOURCES: [&str; 21] = [
    "admin/src/doctor",
    "admin/src/doctor.rs",
    "admin/src/enable.rs",
    "admin/src/prove",
    "admin/src/prove.rs",
    "admin/src/release.rs",
    "admin/src/top",
    "admin/src/top.rs",
    "admin/src/unit_filter.rs",
    "cli/src/main.rs",
    "daemon/src",
    "engine/src",
    "frontend/src",
    "options/src",
    "output/src/input.rs",
    "output/src/lib.rs",
    "output/src/lines.rs",
    "program/src",
    "http/src/serve",
    "http/src/cli/serve.rs",
    "kernel/src/state.rs",
];
/// Folders of what finds something to say of a process or a machine.
const FINDERS: [&str; 2] = ["advice", "doctor"];
/// Fewer letters are a form around another message.
const LETTERS_MIN: usize = 8;
/// An error whose words are in a variable: they are looked for so far before it.
const BEFORE: usize = 1500;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every source file, without comments and tests.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(path: &Path, all: &mut Vec<PathBuf>) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                walk(&entry.unwrap().path(), all);
            }
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            all.push(path.to_path_buf());
        }
    }
    let mut files = Vec::new();
    for source in SOURCES {
        let path = repository().join("crates").join(source);
        assert!(path.exists(), "{source} has moved");
        walk(&path, &mut files);
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
        (path, code.join("\n"))
    };
    files.into_iter().map(read).collect()
}

/// From an opening bracket to the one that closes it.
fn balanced(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    text
}

/// The string literals of a piece of source, as the page writes them, without those that are no message.
fn messages(source: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find('"') {
        let mut text = String::new();
        let mut chars = rest[start + 1..].char_indices().peekable();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = start + 1 + at + 1;
                    break;
                }
                '\\' => match chars.next() {
                    // The rest of the line's indentation does not count.
                    Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, c)) => text.push(c),
                    None => {}
                },
                c => text.push(c),
            }
        }
        rest = &rest[end.min(rest.len())..];
        let text = on_page(&text);
        if text.contains(' ') && text.chars().filter(char::is_ascii_alphabetic).count() >= LETTERS_MIN {
            all.push(text);
        }
    }
    all
}

/// `{...}` becomes `…`.
fn on_page(format: &str) -> String {
    let (mut text, mut chars) = (String::new(), format.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if chars.next_if_eq(&c).is_some() => text.push(c),
            '{' => {
                while chars.next().is_some_and(|c| c != '}') {}
                text.push('…');
            }
            c => text.push(c),
        }
    }
    text
}

/// Where `name(` is called: the text from the bracket on, and what is before.
fn calls<'a>(text: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let call = format!("{name}(");
    let whole = |at: &usize| {
        !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_') && !text[..*at].ends_with("fn ")
    };
    text.match_indices(&call)
        .map(|(at, _)| at)
        .filter(whole)
        .map(|at| (balanced(&text[at + name.len()..]), &text[..at]))
        .collect()
}

/// The words of the variable that the call ends with.
fn words_of_variable(call: &str, before: &str) -> Vec<String> {
    let name = call.trim_end_matches(')').rsplit([',', '(']).next().unwrap_or_default().trim();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
        return Vec::new();
    }
    let start = before.rfind(&format!("let {name} ="));
    let start = start.filter(|start| before.len() - start < BEFORE);
    start.map_or_else(Vec::new, |start| {
        let rest = &before[start..];
        messages(&rest[..rest.find(";\n").unwrap_or(rest.len())])
    })
}

fn log_lines(sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (path, text) in sources {
        for name in ["tracing::warn!", "tracing::error!"] {
            for (call, _) in calls(text, name) {
                let words = messages(call).into_iter().next();
                all.insert(words.unwrap_or_else(|| panic!("{}: {call} says nothing", path.display())));
            }
        }
        // Announcements (where it listens) give no advice, and a notice does.
        let notices = calls(text, "eprintln!").into_iter().flat_map(|(call, _)| messages(call));
        all.extend(notices.filter(|notice| notice.contains("; ")));
    }
    all
}

/// What makes the error that ends a command. `usage` and `missing` are also closures of that name.
const ENDINGS: [&str; 7] =
    ["Fault::new", "Fault::failed", "Fault::permission", "Fault::busy", "fault", "usage", "missing"];

fn endings(sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (path, text) in sources {
        for name in ENDINGS {
            for (call, before) in calls(text, name) {
                let found = messages(call);
                all.extend(if found.is_empty() { words_of_variable(call, before) } else { found });
            }
        }
        if path.ends_with("kernel/src/state.rs") {
            let errors = calls(text, "io::Error::new").into_iter();
            all.extend(errors.flat_map(|(call, before)| words_of_variable(call, before)));
        }
    }
    all
}

fn findings(sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, text) in sources
        .iter()
        .filter(|(path, _)| FINDERS.iter().any(|f| path.components().any(|c| c.as_os_str() == *f)))
    {
        let code = |rest: &str| rest.split('"').next().unwrap_or_default().to_string();
        all.extend(text.split("kind: \"").skip(1).map(code));
        for (call, _) in calls(text, "found") {
            if let Some(rest) = call.trim_start_matches('(').trim_start().strip_prefix('"') {
                all.insert(code(rest));
            }
        }
    }
    all
}

/// The first cells of the table under a heading of the page.
fn table(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")).filter(|row| row.starts_with('`'));
    let first = |row: &str| row.split(" | ").next().unwrap().trim_matches(['`', ' ']).to_string();
    let cells: Vec<String> = rows.map(first).collect();
    let unique: BTreeSet<String> = cells.iter().cloned().collect();
    assert_eq!(unique.len(), cells.len(), "a row of {heading} is there twice");
    unique
}

/// Where the values of options are parsed: a file, and the beginning of the function or `impl`; empty: all of
/// the file.
const VALUES: [(&str, &str); 7] = [
    ("policy/src/config.rs", "impl core::str::FromStr for LongestWait"),
    ("options/src/values.rs", ""),
    ("options/src/named.rs", ""),
    ("program/src/config/file.rs", "fn words("),
    ("daemon/src/cli.rs", "fn octal("),
    ("http/src/cli/bounds.rs", "fn bounds("),
    ("http/src/cli/serve.rs", "fn address("),
];

fn wrong_values() -> BTreeSet<String> {
    let said = VALUES.into_iter().flat_map(|(file, start)| {
        let text = fs::read_to_string(repository().join("crates").join(file)).unwrap();
        let at = text.find(start).unwrap_or_else(|| panic!("{file}: {start} has moved"));
        let text = text[at..].split("#[cfg(test)]").next().unwrap();
        let text = if start.is_empty() { text } else { text.split("\n}\n").next().unwrap() };
        let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
        messages(&code.join("\n"))
    });
    said.collect()
}

fn compare(said: &BTreeSet<String>, page: &str, heading: &str) {
    let written = table(page, heading);
    assert!(!said.is_empty() && !written.is_empty());
    let missing: Vec<_> = said.difference(&written).collect();
    let stale: Vec<_> = written.difference(said).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/MESSAGES.md, {heading}: not on the page: {missing:#?}; no longer in the sources: {stale:#?}"
    );
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/MESSAGES.md")).unwrap()
}

#[test]
fn every_log_line_is_on_the_page() {
    compare(&log_lines(&sources()), &page(), "While it runs");
}

#[test]
fn every_error_that_ends_a_command_is_on_the_page() {
    compare(&endings(&sources()), &page(), "What ends a command");
}

#[test]
fn every_wrong_value_is_on_the_page() {
    compare(&wrong_values(), &page(), "Wrong values");
}

#[test]
fn every_finding_of_the_doctor_is_on_the_page() {
    compare(&findings(&sources()), &page(), "What the doctor finds");
}

#[test]
fn each_row_says_what_it_means_and_what_to_do() {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
}

#[test]
fn messages_are_found_in_source() {
    let source = "tracing::warn!(path = %p, \"user {uid} has \\\n   written {n:?} {{x}}\");\n\
        let what = format!(\"no such {kind} here\");\n return Err(Fault::usage(what));";
    let (call, _) = calls(source, "tracing::warn!")[0];
    assert_eq!(messages(call), ["user … has written … {x}"]);
    let (call, before) = calls(source, "Fault::usage")[0];
    assert_eq!(words_of_variable(call, before), ["no such … here"]);
}
