//! The seeds of the fuzz targets (`fuzz/seeds/TARGET/`), regressions among them, through the targets' own checks.

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
