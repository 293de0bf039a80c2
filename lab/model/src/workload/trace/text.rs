//! Text formats with one request a line. Fields are parsed by hand: a replay of millions of lines a second
//! leaves little time for any of them.

use super::{Line, Names, Op, RawRequest};

/// Device numbers in traces are small; a larger one is a misread column.
const DEVICE_MAX: u64 = 1 << 22;
const SECTOR: u64 = 512;

/// Splits a line at commas, or at blanks, and hands out its fields.
struct Fields<'a> {
    rest: &'a [u8],
    comma: bool,
}

impl<'a> Fields<'a> {
    fn commas(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, comma: true }
    }

    fn blanks(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, comma: false }
    }

    fn next(&mut self, what: &str) -> Result<&'a [u8], String> {
        if !self.comma {
            self.rest = self.rest.trim_ascii_start();
        }
        if self.rest.is_empty() {
            return Err(format!("ends before its {what}"));
        }
        let end =
            self.rest.iter().position(|b| if self.comma { *b == b',' } else { b.is_ascii_whitespace() });
        let end = end.unwrap_or(self.rest.len());
        let field = self.rest[..end].trim_ascii();
        self.rest = self.rest.get(end + 1..).unwrap_or(&[]);
        Ok(field)
    }

    fn whole(&mut self, what: &str) -> Result<u64, String> {
        let field = self.next(what)?;
        whole(field).ok_or_else(|| bad(field, what))
    }

    fn device(&mut self, what: &str) -> Result<u32, String> {
        let number = self.whole(what)?;
        if number >= DEVICE_MAX {
            return Err(format!("the {what} {number} is not credible"));
        }
        Ok(number as u32)
    }

    /// A decimal number with an optional fraction, times 10^`power`, rounded down.
    fn scaled(&mut self, what: &str, power: u32) -> Result<u128, String> {
        let field = self.next(what)?;
        scaled(field, power).ok_or_else(|| bad(field, what))
    }
}

fn bad(field: &[u8], what: &str) -> String {
    let shown: String = String::from_utf8_lossy(field).chars().take(32).collect();
    if field.first() == Some(&b'-') {
        format!("the {what} `{shown}` is negative")
    } else {
        format!("the {what} `{shown}` is not a number, or too large a one")
    }
}

fn whole(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 20 {
        return None;
    }
    let mut value = 0_u64;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

fn scaled(field: &[u8], power: u32) -> Option<u128> {
    let (mut value, mut digits, mut left) = (0_u128, 0, power);
    let mut point = false;
    for byte in field {
        match byte {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                digits += 1;
                if digits > 30 {
                    return None;
                }
                if point {
                    if left == 0 {
                        continue;
                    }
                    left -= 1;
                }
                value = value * 10 + u128::from(byte - b'0');
            }
            _ => return None,
        }
    }
    (digits > 0).then(|| value * 10_u128.pow(left))
}

fn sectors(lba: u64) -> Result<u64, String> {
    lba.checked_mul(SECTOR).ok_or_else(|| format!("the address {lba} is too large"))
}

fn request(time_ns: Option<u128>, device: u32, op: Op, offset: u64, bytes: u64) -> Line {
    Line::Request(RawRequest { time_ns, device, op, offset, bytes, end: None })
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

/// `ASU,LBA,size,opcode,timestamp`: application storage unit, 512-byte block, bytes, R or W, seconds.
pub(super) fn spc(line: &[u8]) -> Result<Line, String> {
    if is_blank(line) {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::commas(line);
    let device = f.device("storage unit (ASU)")?;
    let offset = sectors(f.whole("address (LBA)")?)?;
    let bytes = f.whole("size")?;
    let op = match f.next("operation")? {
        b"R" | b"r" => Op::Read,
        b"W" | b"w" => Op::Write,
        other => {
            return Err(format!("the operation `{}` is neither R nor W", String::from_utf8_lossy(other)));
        }
    };
    let time = f.scaled("time", 9)?;
    Ok(request(Some(time), device, op, offset, bytes))
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: Windows file time (100 ns), bytes.
pub(super) fn msr(line: &[u8], number: u64, names: &mut Names) -> Result<Line, String> {
    if is_blank(line) || (number == 1 && line.starts_with(b"Timestamp")) {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::commas(line);
    let ticks = f.whole("time")?;
    let host = f.next("host")?;
    let disk = f.next("disk number")?;
    let op = match f.next("operation")? {
        b"Read" | b"read" => Op::Read,
        b"Write" | b"write" => Op::Write,
        other => {
            return Err(format!(
                "the operation `{}` is neither Read nor Write",
                String::from_utf8_lossy(other)
            ));
        }
    };
    let offset = f.whole("offset")?;
    let bytes = f.whole("size")?;
    let device = names.number(&[host, b"/", disk].concat())?;
    Ok(request(Some(u128::from(ticks) * 100), device, op, offset, bytes))
}

/// What a SCSI command does, by its operation code; `None` if it moves no data of interest.
pub(super) fn scsi_op(code: u64) -> Option<Op> {
    match code {
        // READ (6), (10), (12), (16)
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        // WRITE (6), (10), (12), (16)
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        _ => None,
    }
}

/// `version,time,op,size,lbn`: seconds, SCSI operation code in hexadecimal, bytes, 512-byte block.
pub(super) fn cloud_physics(line: &[u8], number: u64) -> Result<Line, String> {
    if is_blank(line) || (number == 1 && line.starts_with(b"version")) {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::commas(line);
    f.whole("version")?;
    let time = f.scaled("time", 9)?;
    let field = f.next("operation")?;
    let code = std::str::from_utf8(field).ok().and_then(|s| u64::from_str_radix(s, 16).ok());
    let code = code.ok_or_else(|| bad(field, "operation code"))?;
    let bytes = f.whole("size")?;
    let offset = sectors(f.whole("address (lbn)")?)?;
    Ok(scsi_op(code).map_or(Line::Nothing, |op| request(Some(time), 0, op, offset, bytes)))
}

/// `time_s,dev,blkno,bytes,is_read,...` after a header: seconds, device, 512-byte block.
pub(super) fn srt(line: &[u8], number: u64) -> Result<Line, String> {
    if is_blank(line) || (number == 1 && line.starts_with(b"time")) {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::commas(line);
    let time = f.scaled("time", 9)?;
    let device = f.device("device")?;
    let offset = sectors(f.whole("block number")?)?;
    let bytes = f.whole("size")?;
    let op = match f.next("is_read")? {
        b"1" => Op::Read,
        b"0" => Op::Write,
        other => return Err(format!("is_read is `{}`, neither 0 nor 1", String::from_utf8_lossy(other))),
    };
    Ok(request(Some(time), device, op, offset, bytes))
}

/// `arrival device block blocks flags`: milliseconds, 512-byte blocks; flags in hexadecimal, bit 0 set for a
/// read.
pub(super) fn disksim(line: &[u8]) -> Result<Line, String> {
    if is_blank(line) || line.first() == Some(&b'#') {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::blanks(line);
    let time = f.scaled("arrival time", 6)?;
    let device = f.device("device")?;
    let offset = sectors(f.whole("block number")?)?;
    let bytes = sectors(f.whole("size in blocks")?)?;
    let field = f.next("flags")?;
    let flags = std::str::from_utf8(field).ok().and_then(|s| u64::from_str_radix(s, 16).ok());
    let flags = flags.ok_or_else(|| bad(field, "flags"))?;
    let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
    Ok(request(Some(time), device, op, offset, bytes))
}

/// `first_block number_of_blocks ignored sequence_number`.
pub(super) fn lis(line: &[u8], block_bytes: u64) -> Result<Line, String> {
    if is_blank(line) {
        return Ok(Line::Nothing);
    }
    let mut f = Fields::blanks(line);
    let first = f.whole("first block")?;
    let blocks = f.whole("number of blocks")?;
    f.next("third column")?;
    f.next("sequence number")?;
    let too_large = || format!("the request {first} + {blocks} is too large");
    let offset = first.checked_mul(block_bytes).ok_or_else(too_large)?;
    let bytes = blocks.checked_mul(block_bytes).ok_or_else(too_large)?;
    Ok(request(None, 0, Op::Read, offset, bytes))
}

/// One block number; a line that starts with `*` is a break.
pub(super) fn blocks(line: &[u8], block_bytes: u64) -> Result<Line, String> {
    if is_blank(line) || line.first() == Some(&b'*') {
        return Ok(Line::Nothing);
    }
    let field = line.trim_ascii();
    let block = whole(field).ok_or_else(|| bad(field, "block number"))?;
    let offset = block.checked_mul(block_bytes).ok_or_else(|| format!("the block {block} is too large"))?;
    Ok(request(None, 0, Op::Read, offset, block_bytes))
}
