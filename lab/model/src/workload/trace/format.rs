//! The formats, by name.

use std::fmt;

use super::{Line, Names, log, text, vscsi};

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// SPC, as the UMass repository has it: `ASU,LBA,bytes,R|W,seconds` (512-byte LBA).
    Spc,
    /// MSR Cambridge: `ticks,host,disk,Read|Write,byte offset,bytes,response` (100 ns ticks).
    Msr,
    /// CloudPhysics as CSV: `version,seconds,SCSI opcode in hex,bytes,LBA`.
    CloudPhysics,
    /// CloudPhysics binary, records of version 1 (32 bytes).
    Vscsi1,
    /// CloudPhysics binary, records of version 2 (40 bytes).
    Vscsi2,
    /// HP Labs SRT traces as CSV with a header: `time_s,dev,blkno,bytes,is_read,...` (512-byte blocks).
    Srt,
    /// DiskSim ASCII: `milliseconds device block blocks flags` (512-byte blocks, flag bit 0 = read).
    DiskSim,
    /// ARC (`.lis`): `first block, blocks, ignored, sequence number`; blocks of a size of their own, no
    /// times.
    Lis,
    /// One block number a line, `*` lines are breaks; no times.
    Blocks,
    /// nginx or Apache combined (or common) access log: each answer is a read of the object from its start.
    AccessLog,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 10] = [
        Format::Spc,
        Format::Msr,
        Format::CloudPhysics,
        Format::Vscsi1,
        Format::Vscsi2,
        Format::Srt,
        Format::DiskSim,
        Format::Lis,
        Format::Blocks,
        Format::AccessLog,
    ];

    /// Name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Spc => "spc",
            Format::Msr => "msr",
            Format::CloudPhysics => "cloudphysics",
            Format::Vscsi1 => "vscsi1",
            Format::Vscsi2 => "vscsi2",
            Format::Srt => "srt",
            Format::DiskSim => "disksim",
            Format::Lis => "lis",
            Format::Blocks => "blocks",
            Format::AccessLog => "access-log",
        }
    }

    /// The format of a name; a few other common names are understood.
    pub fn from_name(name: &str) -> Option<Format> {
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "umass" => Format::Spc,
            "msr-cambridge" => Format::Msr,
            "csv" | "cp" | "cloudphysics-csv" => Format::CloudPhysics,
            "vscsi" => Format::Vscsi2,
            "hp" | "hp-srt" => Format::Srt,
            "disksim-ascii" | "ascii" => Format::DiskSim,
            "arc" => Format::Lis,
            "plain" | "block" | "trace" => Format::Blocks,
            "nginx" | "apache" | "combined" | "log" => Format::AccessLog,
            other => return Format::ALL.into_iter().find(|f| f.name() == other),
        })
    }

    /// What a file's name suggests, its compression suffix already taken off.
    pub fn guess(file_name: &str) -> Option<Format> {
        let name = file_name.to_ascii_lowercase();
        let ends = |suffix: &str| name.ends_with(suffix);
        if ends(".spc") {
            Some(Format::Spc)
        } else if ends(".lis") {
            Some(Format::Lis)
        } else if ends(".trace") || ends(".blocks") {
            Some(Format::Blocks)
        } else if ends(".vscsi1") {
            Some(Format::Vscsi1)
        } else if ends(".vscsi2") || ends(".vscsi") {
            Some(Format::Vscsi2)
        } else if ends(".log") || name.contains("access") || name.contains("apache") {
            Some(Format::AccessLog)
        } else if ends(".ascii") {
            Some(Format::DiskSim)
        } else if ends(".csv") && name.contains("cloudphysics") {
            Some(Format::CloudPhysics)
        } else {
            None
        }
    }

    /// Whether its requests have times.
    pub fn timed(self) -> bool {
        !matches!(self, Format::Lis | Format::Blocks)
    }

    /// Bytes a record, for binary formats.
    pub(crate) fn record_bytes(self) -> Option<usize> {
        match self {
            Format::Vscsi1 => Some(vscsi::RECORD_1_BYTES),
            Format::Vscsi2 => Some(vscsi::RECORD_2_BYTES),
            _ => None,
        }
    }

    /// Whether lines are written when requests end, so that their times may be slightly out of order.
    pub(crate) fn written_at_end(self) -> bool {
        self == Format::AccessLog
    }

    pub(crate) fn parse(
        self,
        line: &[u8],
        number: u64,
        block_bytes: u64,
        names: &mut Names,
    ) -> Result<Line, String> {
        match self {
            Format::Vscsi1 => vscsi::parse_1(line),
            Format::Vscsi2 => vscsi::parse_2(line),
            Format::AccessLog => log::parse(line, names),
            Format::Spc => text::spc(line),
            Format::Msr => text::msr(line, number, names),
            Format::CloudPhysics => text::cloud_physics(line, number),
            Format::Srt => text::srt(line, number),
            Format::DiskSim => text::disksim(line),
            Format::Lis => text::lis(line, block_bytes),
            Format::Blocks => text::blocks(line, block_bytes),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
