//! A trace from anywhere, in any of the formats: read or refused, every record within its bounds.

use seekless_model::workload::trace::{Format, OFFSET_MAX, Options, REQUEST_BYTES_MAX, Reader};

/// The first byte chooses format and leniency, the rest is the trace.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let format = Format::ALL[usize::from(choice & 0x7f) % Format::ALL.len()];
    let options = Options { lenient: choice & 0x80 != 0, block_bytes: 4096 };
    let mut reader = Reader::new(rest, format, options);
    let (mut records, mut errors, mut last) = (0u64, 0u64, None);
    for record in &mut reader {
        match record {
            Ok(record) => {
                records += 1;
                assert!(record.offset <= OFFSET_MAX && (1..=REQUEST_BYTES_MAX).contains(&record.bytes));
                assert_eq!(record.at.is_some(), format.timed());
                assert!(record.at >= last, "time runs backwards");
                last = record.at;
            }
            Err(error) => {
                errors += 1;
                assert!(error.line >= 1 && !error.message.contains('\n'), "{error}");
            }
        }
    }
    assert!(errors <= 1, "a reader stops at its first error");
    assert!(records + reader.skipped() <= reader.lines());
    // A lenient reader gets to the end of a text whose lines are lines.
    let lines_are_short = rest.split(|b| *b == b'\n').all(|line| line.len() < 1 << 16);
    let binary = matches!(format, Format::Vscsi1 | Format::Vscsi2);
    assert!(errors == 0 || !options.lenient || !lines_are_short || binary, "a lenient reader stopped");
    assert_eq!(Format::from_name(format.name()), Some(format));
}
