//! The seeds of the fuzz targets (`fuzz/seeds/TARGET/`), regressions among them, through the targets' own
//! checks.

#[allow(unreachable_pub, missing_docs, dead_code, reason = "a library of its own in fuzz/")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

#[test]
fn every_seed_holds() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut count = 0;
    for folder in std::fs::read_dir(seeds).unwrap().flatten() {
        let target = folder.file_name().into_string().unwrap();
        for seed in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let data = std::fs::read(seed.path()).unwrap();
            // Shown only if the next line panics.
            println!("{target}: {}", seed.path().display());
            assert!(targets::run(&target, &data), "no target {target}");
            count += 1;
        }
    }
    assert!(count >= 50, "{count} seeds");
}

/// For a machine without libFuzzer: seeds changed at random, for `SEEKLESS_FUZZ_S` seconds a target (60).
/// `cargo test -p seekless-lab --test seeds -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes; run by hand"]
fn changed_seeds_hold() {
    use rand::{RngExt, SeedableRng};
    let seconds = std::env::var("SEEKLESS_FUZZ_S").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let dictionary: Vec<Vec<u8>> =
        ["\r\n\r\n", "\r\n", "bytes=", "-", ",", "/", "%2e", "W/", "\"", ":", "0", "18446744073709551615"]
            .iter()
            .map(|token| token.as_bytes().to_vec())
            .collect();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let only = std::env::var("SEEKLESS_FUZZ_TARGET").ok();
    for target in std::fs::read_dir(folder).unwrap().flatten() {
        let name = target.file_name().into_string().unwrap();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let seeds: Vec<Vec<u8>> = std::fs::read_dir(target.path())
            .unwrap()
            .flatten()
            .map(|s| std::fs::read(s.path()).unwrap())
            .collect();
        let start: u64 = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let mut random = rand_pcg::Pcg64::seed_from_u64(start);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
        let mut count = 0u64;
        while std::time::Instant::now() < until {
            let mut data = seeds[random.random_range(0..seeds.len())].clone();
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..=data.len());
                match random.random_range(0..6) {
                    0 if at < data.len() => data[at] ^= 1 << random.random_range(0..8),
                    1 if at < data.len() => data[at] = random.random(),
                    2 => drop(data.splice(at..at, [random.random()])),
                    3 => drop(data.drain(at..(at + random.random_range(0..9)).min(data.len()))),
                    4 => {
                        let token = dictionary[random.random_range(0..dictionary.len())].clone();
                        drop(data.splice(at..at, token));
                    }
                    _ => {
                        let other = &seeds[random.random_range(0..seeds.len())];
                        let from = random.random_range(0..=other.len());
                        let piece =
                            other[from..(from + random.random_range(0..200)).min(other.len())].to_vec();
                        drop(data.splice(at..at, piece));
                    }
                }
            }
            let held = std::panic::catch_unwind(|| targets::run(&name, &data));
            if held.is_err() {
                let path = std::env::temp_dir().join(format!("seekless-{name}-{start:x}"));
                std::fs::write(&path, &data).unwrap();
                panic!("{name}: {} breaks it", path.display());
            }
            count += 1;
        }
        println!("{name}: {count} inputs in {seconds} s, from number {start}");
    }
}
