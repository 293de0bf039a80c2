//! An engine on a btrfs of several devices.

#[path = "../../kernel/tests/made/mod.rs"]
#[allow(dead_code, reason = "the tests of the kernel crate use the rest of it")]
mod made;

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use made::{FILE_BYTES, make};
use seekless_base::Bytes;
use seekless_engine::{Completion, Engine, ForwardedCall, InProcess, Settings, Submitted};
use seekless_kernel::btrfs::Volume;

/// Timeout of every wait.
const NEVER: Duration = Duration::from_secs(60);

const M: u64 = 1 << 20;

/// If threads did not select the copy, all pieces would come from one of the two.
#[test]
fn mirrors_are_read_from_both_sides() {
    let Some(made) = make("raid1", 2) else { return };
    // More than half of one chunk, whatever its length.
    let files = made.files(7);
    if !Volume::read(&files[0]).unwrap().thread_chooses {
        return println!("skipped: another read policy, or process numbers of a container's own");
    }
    let mut settings = Settings { include_ssd: true, ..Settings::default() };
    settings.policy.prefetch = Bytes::mib(1);
    let engine = Engine::start(settings);
    let before = made.read_bytes();
    for file in &files {
        for at in (0..FILE_BYTES as u64).step_by(M as usize) {
            let (told, answer) = mpsc::channel();
            let on_answer = move |a: Completion<'_>| {
                let _ = told.send(matches!(a, Completion::Resident(_)));
            };
            let call = ForwardedCall::of(file.as_fd(), at, M).unwrap();
            let mut door = InProcess::new(file.as_fd(), Box::new(on_answer));
            if let Submitted::Blocked(_) = engine.submit(call, &mut door).unwrap() {
                assert!(answer.recv_timeout(NEVER).unwrap(), "in memory");
            }
        }
    }
    let until = Instant::now() + NEVER;
    let wanted = (files.len() * FILE_BYTES) as u64;
    let read = loop {
        let read: Vec<u64> = made.read_bytes().iter().zip(&before).map(|(now, then)| now - then).collect();
        if read.iter().sum::<u64>() >= wanted {
            break read;
        }
        assert!(Instant::now() < until, "{read:?} of {wanted}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(read.iter().all(|&bytes| bytes >= wanted / 8), "{read:?}");
    let disks = engine.statistics();
    assert!(disks.iter().any(|disk| disk.name.starts_with("btrfs:loop")), "{disks:?}");
}
