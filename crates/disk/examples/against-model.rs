//! A profile measured on a virtual disk as large as its drive, against the drive's model: `against-model DRIVE JSON`.
//! Prints the five figures that are furthest off; exits 1 if one is off by more than 5 %.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::ExitCode;

use seekless_drive::catalogue;
use seekless_policy::profile::DiskProfile;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, drive, file] = args.as_slice() else {
        eprintln!("usage: against-model DRIVE JSON");
        return ExitCode::from(2);
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let profile: Result<DiskProfile, _> = serde_json::from_value(report["profile"].clone());
    let (Some(spec), Ok(profile)) = (catalogue::get(drive), profile) else {
        eprintln!("no drive {drive}, or no profile in {file}");
        return ExitCode::from(2);
    };
    let worst =
        common::compare(&profile, &spec, profile.overhead.as_millis_f64() - spec.electronics.read_miss_ms);
    println!(
        "{drive}: {} overhead, of which the drive {} ms",
        profile.overhead, spec.electronics.read_miss_ms
    );
    for (off, what) in worst.iter().take(5) {
        println!("  {:5.2} %  {what}", off * 100.0);
    }
    ExitCode::from(u8::from(worst[0].0 > 0.05))
}
