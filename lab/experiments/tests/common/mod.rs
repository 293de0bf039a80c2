//! The measuring procedure in virtual time.
// Each test and example uses its part.
#![allow(dead_code)]

use seekless_base::Nanos;
use seekless_model::drive::{Command, Drive, DriveSpec, Op};
use seekless_policy::profile::{DiskProfile, Procedure, ProcedureOptions, Timing, Unmeasurable};

/// Time between a completion and the next command at the earliest: the host's system call.
pub(crate) const HOST: Nanos = Nanos::from_micros(20);

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) profile: DiskProfile,
    pub(crate) reads: u64,
    pub(crate) busy: Nanos,
    pub(crate) wall: Nanos,
}

/// Runs the procedure on a model. `spoil` may change what each read's timing is said to be.
pub(crate) fn measure(spec: &DriveSpec, spoil: impl FnMut(u64, Timing) -> Timing) -> Measured {
    try_measure(spec, spoil).unwrap()
}

/// The same, where it may not come to a profile.
pub(crate) fn try_measure(
    spec: &DriveSpec,
    mut spoil: impl FnMut(u64, Timing) -> Timing,
) -> Result<Measured, Unmeasurable> {
    let mut drive = Drive::new(spec);
    let options = ProcedureOptions { sectors: drive.sectors(), block: 1, seed: 7 };
    let mut procedure = Procedure::new(options).unwrap();
    let (mut now, mut reads, mut busy) = (Nanos::from_secs(1), 0, Nanos::ZERO);
    while let Some(read) = procedure.next(now) {
        let issued = (now + HOST).max(read.not_before);
        let command = Command { id: 0, op: Op::Read, lba: read.lba, sectors: read.sectors };
        drive.submit(issued, command).unwrap();
        let completed = drive.next_completion().unwrap();
        drive.poll(completed).unwrap();
        let timing = spoil(reads, Timing { issued, completed, disturbed: false });
        procedure.done(timing);
        now = timing.completed;
        reads += 1;
        busy += completed.since(issued);
    }
    Ok(Measured { profile: procedure.finish()?, reads, busy, wall: now })
}
