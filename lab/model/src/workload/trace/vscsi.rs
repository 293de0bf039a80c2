//! CloudPhysics' binary records, little-endian, as libCacheSim describes them: version 1 has 32 bytes
//! (serial, length, segments, command, version, block, time), version 2 has 40 (command, version, serial,
//! length, segments, block, time, response time). The version is the high byte of its field. Lengths in
//! bytes, blocks of 512, times in microseconds.

use std::io::BufRead;

use super::text::scsi_op;
use super::{Line, RawRequest};

pub(super) const RECORD_1_BYTES: usize = 32;
pub(super) const RECORD_2_BYTES: usize = 40;

/// Reads one record; false at a clean end, an error if the file ends within one.
pub(super) fn read_record<R: BufRead>(
    input: &mut R,
    size: usize,
    record: &mut Vec<u8>,
) -> Result<bool, String> {
    while record.len() < size {
        let buffer = input.fill_buf().map_err(|e| format!("cannot be read: {e}"))?;
        if buffer.is_empty() {
            return match record.len() {
                0 => Ok(false),
                n => Err(format!("the file ends within a record: {n} of {size} bytes; it is truncated")),
            };
        }
        let take = buffer.len().min(size - record.len());
        record.extend_from_slice(&buffer[..take]);
        input.consume(take);
    }
    Ok(true)
}

fn number(record: &[u8], at: usize, bytes: usize) -> u64 {
    record[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn line(
    version: u64,
    expected: u64,
    command: u64,
    bytes: u64,
    block: u64,
    time_us: u64,
) -> Result<Line, String> {
    if version >> 8 != expected {
        return Err(format!("the record is of version {}, not {expected}", version >> 8));
    }
    let Some(op) = scsi_op(command & 0xff) else { return Ok(Line::Nothing) };
    let offset = block.checked_mul(512).ok_or_else(|| format!("the address {block} is too large"))?;
    let time_ns = Some(u128::from(time_us) * 1000);
    Ok(Line::Request(RawRequest { time_ns, device: 0, op, offset, bytes, end: None }))
}

pub(super) fn parse_1(r: &[u8]) -> Result<Line, String> {
    line(number(r, 14, 2), 1, number(r, 12, 2), number(r, 4, 4), number(r, 16, 8), number(r, 24, 8))
}

pub(super) fn parse_2(r: &[u8]) -> Result<Line, String> {
    line(number(r, 2, 2), 2, number(r, 0, 2), number(r, 8, 4), number(r, 16, 8), number(r, 24, 8))
}
