//! The documents are true where a program can tell: pages follow from records, names exist, lines can be
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use seekless_experiments::record::{self, Record};
use seekless_experiments::report::pages;
use seekless_experiments::scenario::{self, Scenario};
use seekless_experiments::sheet;

/// Longest line of a comment and of prose, columns.
const WIDTH: usize = 110;
/// Terms a newcomer can learn in one sitting.
const TERMS_MAX: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files under `folder` with one of these endings, in order, as paths from the root.
fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| endings.iter().any(|wanted| e == *wanted)) {
                found.push(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Everything people read first, with the pages of results.
fn documents() -> Vec<String> {
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "scenarios/README.md", "drives/README.md"];
    files("docs", &["md"]).into_iter().chain(top.map(String::from)).collect()
}

#[test]
fn result_pages_are_what_the_records_give() {
    let differ = pages::differences(&root().join(record::FOLDER), &root().join(pages::FOLDER)).unwrap();
    assert!(differ.is_empty(), "{differ:?} differ: run `seekless-lab docs` in the checkout");
}

#[test]
fn recorded_checks_follow_from_the_recorded_rows() {
    for file in files(record::FOLDER, &["json"]) {
        let name = Path::new(&file).file_stem().unwrap().to_str().unwrap().to_string();
        // Of `scripts/test-kernels`.
        if name == "kernels" {
            continue;
        }
        let (_, scenario) =
            scenario::find(&name).unwrap_or_else(|_| panic!("{file}: there is no such scenario"));
        let record = Record::read(&root().join(record::FOLDER), &name).unwrap().unwrap();
        for (driver, run) in &record.runs {
            assert!(["live", "sim"].contains(&driver.as_str()), "{file}: {driver}");
            for recorded in &run.checks {
                let Some(check) = scenario.checks.iter().find(|c| c.name == recorded.name) else { continue };
                // The check was changed since, by docs/STATEMENTS.md.
                if check.is.sign() != recorded.comparison || check.target != recorded.target {
                    continue;
                }
                let again = check.judge(&run.rows, scenario.main_metric()).value;
                let same = match (again, recorded.value) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-3 * b.abs().max(1e-3),
                    (a, b) => a == b,
                };
                assert!(
                    same,
                    "{file}, {driver}: `{}` is recorded as {:?}, its rows give {again:?}; record the run again",
                    check.name, recorded.value
                );
                // An order of a paper also has to be beyond a margin, which older records do not know.
                assert!(
                    check.margin.is_some()
                        || recorded.pass
                            == recorded.value.is_some_and(|v| check.is.holds(v, recorded.target)),
                    "{file}, {driver}: {}",
                    check.name
                );
            }
        }
    }
}

#[test]
fn statements_of_papers_follow_the_rule_sheet() {
    let breaches = sheet::breaches(Some(&read(&root().join(sheet::CHOSEN)))).unwrap();
    assert!(breaches.is_empty(), "{}", breaches.iter().map(|b| format!("\n{b}")).collect::<String>());
}

#[test]
fn a_cause_of_a_deviation_states_no_value_of_a_run() {
    for (name, text) in scenario::all() {
        for check in Scenario::parse(text, name).unwrap().checks {
            let Some(cause) = &check.deviation else { continue };
            assert!(
                cause.starts_with(|c: char| c.is_uppercase()) && cause.ends_with('.'),
                "{name}, `{}`: a cause is a sentence, without the value, which the report shows: {cause}",
                check.name
            );
        }
    }
}

#[test]
fn files_named_in_the_documents_exist() {
    for document in documents() {
        let text = read(&root().join(&document));
        let folder = root().join(&document).parent().unwrap().to_path_buf();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { root().join(&document) } else { folder.join(target) };
            assert!(path.exists(), "{document} links to {target}, which is not there");
            assert!(
                anchor.is_empty() || anchors(&read(&path)).contains(anchor),
                "{document} links to {link}: {target} has no such heading"
            );
        }
        let path_like = |c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c));
        for word in
            text.split(path_like).filter(|w| HOUSES.iter().any(|house| w.starts_with(&format!("{house}/"))))
        {
            let word = word.trim_end_matches('.');
            assert!(root().join(word).exists(), "{document} names {word}, which is not there");
        }
    }
}

#[test]
fn tests_and_examples_named_in_the_documents_exist() {
    let folders = HOUSES.iter().flat_map(|house| crates(house));
    let name = |folder: &str| -> String {
        let manifest: toml::Table = read(&root().join(folder).join("Cargo.toml")).parse().unwrap();
        manifest["package"]["name"].as_str().unwrap().to_string()
    };
    let packages: BTreeMap<String, String> = folders.map(|folder| (name(&folder), folder)).collect();
    let mut found = 0;
    for document in documents() {
        let text = read(&root().join(&document));
        let is_between = |c: char| c.is_whitespace() || "`(),;".contains(c);
        let words: Vec<&str> = text.split(is_between).filter(|word| !word.is_empty()).collect();
        let mut package = "";
        for pair in words.windows(2) {
            let kind = match pair[0] {
                "-p" => {
                    package = pair[1];
                    continue;
                }
                "--test" => "tests",
                "--example" => "examples",
                _ => continue,
            };
            let folder = packages.get(package).unwrap_or_else(|| panic!("{document}: -p {package}"));
            let file = format!("{folder}/{kind}/{}.rs", pair[1]);
            assert!(root().join(&file).exists(), "{document} runs {file}, which is not there");
            found += 1;
        }
    }
    assert!(found > 0, "no document runs a test");
}

/// Anchors of the headings of a page, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim());
    let slug = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|heading| heading.chars().filter_map(slug).collect()).collect()
}

/// From the hook to the disk and back: each step is a line of the drawing with number, name, file and
/// function.
#[test]
fn the_path_of_a_read_has_at_most_eight_steps_that_exist() {
    let text = read(&root().join("docs/ARCHITECTURE.md"));
    let section = text.split_once("## The path of a read\n").expect("the section").1;
    let drawing = section.split("```").nth(1).expect("a drawing");
    let words = |line: &'_ str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let is_step = |line: &Vec<String>| line.first().is_some_and(|word| word.parse::<usize>().is_ok());
    let steps: Vec<Vec<String>> = drawing.lines().map(words).filter(is_step).collect();
    assert!((2..=8).contains(&steps.len()), "{} steps", steps.len());
    for (i, step) in steps.iter().enumerate() {
        let [number, name, file, function, ..] = step.as_slice() else {
            panic!("a step of too few words: {step:?}")
        };
        assert_eq!(*number, (i + 1).to_string(), "{name}");
        let path = root().join(file);
        assert!(path.is_file(), "step {number}, {name}: {file} is not there");
        assert!(
            read(&path).contains(&format!("fn {function}(")),
            "step {number}, {name}: {file} has no function {function}"
        );
    }
    assert_eq!(steps[0][2..4], ["crates/shim/src/hooks.rs", "pread"], "it begins with the server's call");
    assert!(steps.iter().any(|step| step[2].starts_with("crates/kernel/")), "it reaches the disk");
}

/// The product, and its laboratory.
const HOUSES: [&str; 2] = ["crates", "lab"];

/// Folders of the crates of one of them, as paths from the root.
fn crates(house: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(house)).unwrap();
    entries.map(|entry| format!("{house}/{}", entry.unwrap().file_name().to_string_lossy())).collect()
}

/// Nothing an operator installs needs the laboratory, not even to be tested.
#[test]
fn the_product_does_not_depend_on_the_laboratory() {
    let manifest =
        |folder: &str| -> toml::Table { read(&root().join(folder).join("Cargo.toml")).parse().unwrap() };
    let name = |folder: &String| manifest(folder)["package"]["name"].as_str().unwrap().to_string();
    let laboratory: BTreeSet<String> = crates("lab").iter().map(name).collect();
    assert!(laboratory.contains("seekless-sim"), "they have other names: {laboratory:?}");
    for folder in crates("crates") {
        let manifest = manifest(&folder);
        let targets = manifest.get("target").and_then(toml::Value::as_table);
        let tables = targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table);
        for table in tables.chain([&manifest]) {
            for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
                for (key, value) in table.get(kind).and_then(toml::Value::as_table).into_iter().flatten() {
                    let path = value.get("path").and_then(toml::Value::as_str).unwrap_or_default();
                    let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                    let lab = laboratory.contains(package) || path.contains("lab/");
                    assert!(!lab, "{folder} depends on {package} ({kind})");
                }
            }
        }
    }
}

#[test]
fn the_architecture_lists_every_crate() {
    let text = read(&root().join("docs/ARCHITECTURE.md"));
    let listed: BTreeSet<String> = table(&text, "## Crates").into_keys().collect();
    let crates: BTreeSet<String> = HOUSES.into_iter().flat_map(crates).collect();
    assert_eq!(listed, crates);
}

#[test]
fn the_glossary_has_at_most_forty_terms_with_one_meaning_each() {
    let text = read(&root().join("docs/ARCHITECTURE.md"));
    let terms = table(&text, "## Glossary");
    assert!((20..=TERMS_MAX).contains(&terms.len()), "{} terms", terms.len());
    for (term, meaning) in &terms {
        assert!(meaning.ends_with('.'), "the meaning of {term} is a sentence: {meaning}");
    }
}

/// First and second column of the table below a heading. A name twice is an error.
fn table(text: &str, heading: &str) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    let section = text.split_once(&format!("{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    let section = section.split("\n## ").next().unwrap();
    for line in section.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| ---")).skip(1) {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let name = cells.next().unwrap().trim_matches('`').to_string();
        let meaning = cells.next().unwrap().to_string();
        assert!(rows.insert(name.clone(), meaning).is_none(), "{heading}: {name} stands there twice");
    }
    rows
}

#[test]
fn no_line_of_prose_is_longer_than_a_reader_takes_in() {
    for document in documents() {
        let mut code = false;
        for (i, line) in read(&root().join(&document)).lines().enumerate() {
            code ^= line.starts_with("```");
            // Code, tables and links are as long as they are.
            let verbatim = code || line.starts_with("    ") || line.trim_start().starts_with('|');
            let exempt = verbatim || line.contains("](");
            let columns = line.chars().count();
            assert!(exempt || columns <= WIDTH, "{document}:{} has {columns} columns", i + 1);
        }
    }
}

/// Most words of prose on a page: ten minutes at 220 words a minute. At half, pages would be cut for their
/// length alone; at double, nobody reads to the end.
const WORDS_MAX: usize = 2200;

/// Tables and code are searched, not read. The pages of results are written by a program.
#[test]
fn no_page_takes_longer_than_ten_minutes() {
    let read_through = |page: &String| !page.starts_with("docs/results/") && page != "CHANGELOG.md";
    for page in documents().into_iter().filter(read_through) {
        let (mut code, mut words) = (false, 0);
        for line in read(&root().join(&page)).lines() {
            code ^= line.starts_with("```");
            let verbatim = code || line.starts_with("    ") || line.trim_start().starts_with('|');
            words += if verbatim { 0 } else { line.split_whitespace().count() };
        }
        assert!(words <= WORDS_MAX, "{page} has {words} words of prose: cut it, or split it by its readers");
    }
}

#[test]
fn no_comment_is_longer_than_a_reader_takes_in() {
    let mut long = Vec::new();
    for file in HOUSES.into_iter().flat_map(|house| files(house, &["rs", "toml"])) {
        let mark = if file.ends_with(".rs") { "//" } else { "#" };
        let text = read(&root().join(&file));
        let is_long = |line: &str| line.trim_start().starts_with(mark) && line.chars().count() > WIDTH;
        long.extend(text.lines().position(is_long).map(|at| format!("{file}:{}", at + 1)));
    }
    assert!(long.is_empty(), "comments of more than {WIDTH} columns: {long:#?}");
}

/// Names in what is printed are others'. What the standard library prints is not escaped.
#[test]
fn every_line_for_people_is_escaped() {
    // What a program reads, in a protocol of two processes of ours; and what the shim has no library for.
    let data = ["lab/experiments/src/live/probe.rs", "crates/shim/", "crates/testing/"];
    let mut bare = Vec::new();
    for file in HOUSES.into_iter().flat_map(|house| files(house, &["rs"])) {
        let source =
            file.contains("/src/") && !file.ends_with("tests.rs") && !file.ends_with("test_server.rs");
        if !source || data.iter().any(|data| file.starts_with(data)) {
            continue;
        }
        let text = read(&root().join(&file));
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let line = line.replace("seekless_output::eprintln!(", "");
            let printed =
                ["print!(", "println!(", "io::stderr(), \"", "io::stdout(), \"", "with_writer(std::io"];
            if printed.iter().any(|print| line.contains(print)) {
                bare.push(format!("{file}:{}", i + 1));
            }
        }
    }
    assert!(bare.is_empty(), "write seekless_output::eprintln! or print: {bare:#?}");
}

/// The page of the numbers that are not options.
const BOUNDS: &str = "docs/BOUNDS.md";

#[test]
fn the_table_of_constants_has_each_with_its_value() {
    let page = read(&root().join(BOUNDS));
    let section = page.split("\n## Constants\n").nth(1).and_then(|t| t.split("\n## ").next()).unwrap();
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_string(), cells.get(2)?.parse::<f64>().ok()?))
    });
    let said: BTreeMap<String, f64> = rows.collect();
    let constants = serde_json::json!(seekless_policy::Constants::default());
    let constants: BTreeMap<String, f64> =
        constants.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.as_f64().unwrap())).collect();
    assert_eq!(said, constants, "{BOUNDS}, Constants");
}

/// Where a read passes: files and folders whose numbers stand in a table of the documentation.
const READ_PATH: [&str; 20] = [
    "crates/policy/src",
    "crates/policy/src/sizing/mod.rs",
    "crates/policy/src/sizing/auto.rs",
    "crates/policy/src/sizing/controller/model.rs",
    "crates/base/src/wants",
    "crates/engine/src/addresses.rs",
    "crates/engine/src/devices.rs",
    "crates/engine/src/disk_thread.rs",
    "crates/engine/src/machine.rs",
    "crates/engine/src/open_files.rs",
    "crates/engine/src/start.rs",
    "crates/engine/src/submit.rs",
    "crates/engine/src/worker.rs",
    "crates/policy/src/profile/under_load.rs",
    "crates/shim/src/ask.rs",
    "crates/shim/src/hooks.rs",
    "crates/shim/src/judge.rs",
    "crates/shim/src/marks.rs",
    "crates/shim/src/memory.rs",
    "crates/shim/src/reports.rs",
];

/// Modules of the policy that are no part of its state machine; those with numbers on the read path are named
/// above, file by file.
const OTHER_MODULES: [&str; 8] =
    ["/costs.", "/decisions/", "/disk_order.", "/filesets/", "/ledger/", "/profile/", "/quiet.", "/sizing/"];

/// Modules that the tables name without their crate.
const NAMED_ALONE: [&str; 4] = ["base::wants", "policy::filesets", "policy::profile", "policy::sizing"];

/// Where the numbers are of readers in disk order.
const DISK_ORDER: [&str; 1] = ["crates/policy/src/disk_order.rs"];

/// Where the numbers are that bound file sets.
const FILE_SETS: [&str; 2] = ["crates/policy/src/filesets", "crates/daemon/src/file_sets.rs"];

/// Where the numbers are that bound what is counted of files and programs.
const COSTS: [&str; 3] =
    ["crates/policy/src/costs.rs", "crates/engine/src/costs.rs", "crates/engine/src/processes.rs"];

/// Where the numbers are of disks that may sleep.
const QUIET: [&str; 2] = ["crates/policy/src/engine/quiet.rs", "crates/engine/src/sleep.rs"];

/// Numbers that tune and bound nothing: limits of types and formats, and what follows from another in the
/// same file.
const NO_BOUNDS: [&str; 10] = [
    "NIL",
    "OWED_MAX",
    "PAGE",
    "TO_END",
    "FILE_BYTES_MAX",
    "CLASSES",
    "ATTEMPTS",
    "LEAST",
    "WINDOWS",
    "CERTAIN",
];

/// No more of them than there are now: the direction is forty.
const BOUNDS_MAX: usize = 67;

/// Name and value of each number in a source, as written, without tests.
fn numbers(source: &str) -> Vec<(String, String)> {
    let types = ["u8", "u16", "u32", "u64", "usize", "i32", "f64", "Nanos", "Bytes", "Duration", "[", "("];
    let source = source.split("\n#[cfg(test)]\n").next().unwrap();
    let statements = source.split_inclusive(";\n").flat_map(|text| {
        let text = format!("\n{text}");
        let at = ["\nconst ", "\npub const ", "\npub(crate) const "].iter().filter_map(|word| {
            let at = text.rfind(word)?;
            Some(text[at + word.len()..].to_string())
        });
        at.take(1).collect::<Vec<String>>()
    });
    let number = |statement: String| {
        let (name, rest) = statement.split_once(": ")?;
        let (kind, value) = rest.trim_end().strip_suffix(';')?.split_once(" =")?;
        // Not a function.
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let is_number = is_name && types.iter().any(|t| kind.starts_with(t)) && !kind.contains("&str");
        let value: Vec<&str> = value.split_whitespace().collect();
        is_number.then(|| (name.to_string(), value.join(" ")))
    };
    statements.filter_map(number).collect()
}

#[test]
fn the_table_of_bounds_has_each_number_of_the_read_path() {
    let there = bounds("## Bounds of the read path", &READ_PATH);
    assert!(there <= BOUNDS_MAX, "{there} numbers: derive it, or merge it with another");
}

#[test]
fn the_table_of_disk_order_has_each_number() {
    bounds("## Small files in disk order", &DISK_ORDER);
}

#[test]
fn the_table_of_costs_has_each_number() {
    bounds("## Costs of files and programs", &COSTS);
}

#[test]
fn the_table_of_quiet_disks_has_each_number() {
    bounds("## Quiet disks", &QUIET);
}

#[test]
fn the_table_of_file_sets_has_each_number() {
    bounds("## File sets", &FILE_SETS);
}

/// Compares a table with the numbers in these sources; how many there are.
fn bounds(heading: &str, places: &[&str]) -> usize {
    let page = read(&root().join(BOUNDS));
    let said: BTreeMap<String, String> = table(&page, heading)
        .into_iter()
        .map(|(name, value)| (name, value.trim_matches('`').to_string()))
        .collect();
    let mut there = BTreeMap::new();
    for &place in places {
        let files = if place.ends_with(".rs") { vec![place.to_string()] } else { files(place, &["rs"]) };
        let of_others =
            |file: &&String| place == "crates/policy/src" && OTHER_MODULES.iter().any(|m| file.contains(m));
        for file in files.iter().filter(|file| !file.ends_with("tests.rs") && !of_others(file)) {
            let path = file.trim_start_matches("crates/").trim_end_matches(".rs").replace("/src/", "::");
            let path = path.replace('/', "::");
            let alone = NAMED_ALONE.iter().any(|module| path.starts_with(module));
            let path = path.split_once("::").filter(|_| alone).map_or(path.as_str(), |(_, path)| path);
            let module = path.strip_suffix("::lib").or(path.strip_suffix("::mod")).unwrap_or(path);
            for (name, value) in numbers(&read(&root().join(file))) {
                if !NO_BOUNDS.contains(&name.as_str()) {
                    there.insert(format!("{module}::{name}"), value);
                }
            }
        }
    }
    assert_eq!(said, there, "{BOUNDS}, {heading}");
    there.len()
}

/// Crates that parse what media files say of themselves.
const MEDIA_PARSERS: [&str; 4] = ["mp4-atom", "mkv-element", "m3u8-rs", "roxmltree"];

/// What runs as root, in another's process, or for clients of the network.
const SERVES: [&str; 9] = [
    "seekless-admin",
    "seekless-cli",
    "seekless-daemon",
    "seekless-engine",
    "seekless-frontend",
    "seekless-http",
    "seekless-kernel",
    "seekless-options",
    "seekless-shim",
];

#[test]
fn nothing_that_serves_anybody_depends_on_a_media_parser() {
    let lock: toml::Table = read(&root().join("Cargo.lock")).parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    // A dependency is a name, with its version if there are several.
    let needs: BTreeMap<&str, Vec<&str>> = packages.iter().fold(BTreeMap::new(), |mut needs, package| {
        let all = package.get("dependencies").and_then(|all| all.as_array());
        let names = all.into_iter().flatten().filter_map(|need| need.as_str()?.split(' ').next());
        needs.entry(package["name"].as_str().unwrap()).or_insert_with(Vec::new).extend(names);
        needs
    });
    let reached = |from: &'static str| {
        let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
        while let Some(name) = left.pop() {
            left.extend(needs[name].iter().filter(|need| seen.insert(**need)));
        }
        seen
    };
    for crate_name in SERVES {
        let found: Vec<_> = MEDIA_PARSERS.into_iter().filter(|p| reached(crate_name).contains(p)).collect();
        assert!(found.is_empty(), "{crate_name} depends on {found:?}");
    }
    let parses = reached("seekless-lab");
    assert!(MEDIA_PARSERS.iter().all(|parser| parses.contains(parser)), "they have other names: {parses:?}");
}

/// Drivers of the policy, which translate and have no rules of their own.
const DRIVERS: [&str; 4] = [
    "crates/engine/src/disk_thread.rs",
    "lab/sim/src/serving/engine.rs",
    "lab/sim/src/serving/machine/engines.rs",
    "lab/sim/src/replay/whatif.rs",
];

#[test]
fn a_driver_is_read_in_one_sitting() {
    for driver in DRIVERS {
        let lines = read(&root().join(driver)).lines().count();
        assert!(lines < 400, "{driver} has {lines} lines: a rule belongs in the policy");
    }
}
