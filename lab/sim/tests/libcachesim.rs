//! LRU and ARC miss counts against an independent implementation, the PyPI package `libcachesim`.
//!
//! Runs where a Python with that package is found (`SEEKLESS_PYTHON`, else `python3`); else it says so and
//! passes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use seekless_model::workload::generate::{Kind, PAGE_BYTES};
use seekless_sim::study::cache::{Cache, Origin, Replacement};

const SCRIPT: &str = "
import sys, libcachesim
capacity = int(sys.argv[1])
blocks = [int(line) for line in sys.stdin]
for name in ('LRU', 'ARC'):
    cache = getattr(libcachesim, name)(capacity)
    request = libcachesim.Request()
    request.obj_size = 1
    misses = 0
    for block in blocks:
        request.obj_id = block
        misses += not cache.get(request)
    print(misses)
";

fn theirs(python: &str, capacity: usize, blocks: &[u64]) -> Vec<u64> {
    let mut child = Command::new(python)
        .args(["-c", SCRIPT, &capacity.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = blocks.iter().map(|b| format!("{b}\n")).collect();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect()
}

fn ours(replacement: Replacement, capacity: usize, blocks: &[u64]) -> u64 {
    let mut cache = Cache::new(replacement, capacity as u64).unwrap();
    let mut misses = 0;
    for block in blocks {
        match cache.find(*block) {
            Some(slot) => {
                cache.hit(slot);
            }
            None => {
                cache.insert(*block, Origin::Random, 0);
                misses += 1;
            }
        }
    }
    misses
}

fn real(name: &str) -> Option<Vec<u64>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = std::env::var_os("SEEKLESS_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let input = seekless_input::open(&dir.join("traces").join(name)).ok()?;
    let lines = std::io::BufRead::lines(input.bytes);
    Some(lines.map_while(Result::ok).filter_map(|l| l.trim().parse().ok()).collect())
}

#[test]
fn lru_and_arc_miss_exactly_as_often() {
    let python = std::env::var("SEEKLESS_PYTHON").unwrap_or_else(|_| "python3".into());
    let probe = Command::new(&python).args(["-c", "import libcachesim"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|s| s.success()) {
        println!(
            "skipped: {python} has no libcachesim (pip install libcachesim; SEEKLESS_PYTHON names another Python)"
        );
        return;
    }
    let generated = Kind::Multi.generate(0.02, 1);
    let mut traces = vec![(
        "generated multi",
        generated
            .flat_map(|r| r.offset / PAGE_BYTES..(r.offset + r.bytes) / PAGE_BYTES)
            .collect::<Vec<u64>>(),
    )];
    for name in ["multi1.trace.gz", "multi2.trace.gz", "cs.trace.gz", "sprite.trace.gz"] {
        match real(name) {
            Some(blocks) => traces.push((name, blocks)),
            None => println!("skipped: {name} is not here"),
        }
    }
    for (name, blocks) in traces {
        for capacity in [100, 500, 2000] {
            let ours = [Replacement::Lru, Replacement::Arc].map(|r| ours(r, capacity, &blocks));
            assert_eq!(theirs(&python, capacity, &blocks), ours, "{name}, {capacity} blocks: LRU, ARC");
        }
    }
}
