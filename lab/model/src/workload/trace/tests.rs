use super::*;

fn read(format: Format, text: &[u8]) -> Result<Vec<Record>, TraceError> {
    Reader::new(text, format, Options::default()).collect()
}

fn record(at_us: Option<u64>, device: u32, op: Op, offset: u64, bytes: u64) -> Record {
    let at = at_us.map(Nanos::from_micros);
    Record { at, device, context: device, op, offset, bytes, end: None }
}

use Op::{Read, Write};

#[test]
fn spc() {
    let got = read(Format::Spc, b"0,657728,8192,R,0.011413\n1,10,512,w,0.011565\n\n").unwrap();
    assert_eq!(got, [record(Some(0), 0, Read, 657_728 * 512, 8192), record(Some(152), 1, Write, 5120, 512)]);
}

#[test]
fn msr() {
    let text =
        b"128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372003061639,usr,1,Write,0,512,1\n";
    let got = read(Format::Msr, text).unwrap();
    assert_eq!(got, [record(Some(0), 0, Read, 7_014_609_920, 24_576), record(Some(1), 1, Write, 0, 512)]);
}

#[test]
fn cloud_physics() {
    let got = read(
        Format::CloudPhysics,
        b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,6656,1\n1,5633899,0,0,0\n",
    );
    assert_eq!(
        got.unwrap(),
        [record(Some(0), 0, Write, 42_932_745 * 512, 512), record(Some(1_000_000), 0, Read, 512, 6656)]
    );
}

#[test]
fn vscsi() {
    let mut one = vec![0_u8; 32];
    one[4..8].copy_from_slice(&4096_u32.to_le_bytes());
    one[12] = 0x28;
    one[15] = 1;
    one[16..24].copy_from_slice(&7_u64.to_le_bytes());
    one[24..32].copy_from_slice(&100_u64.to_le_bytes());
    assert_eq!(read(Format::Vscsi1, &one).unwrap(), [record(Some(0), 0, Read, 7 * 512, 4096)]);
    let mut two = vec![0_u8; 40];
    two[0] = 0x2a;
    two[3] = 2;
    two[8..12].copy_from_slice(&512_u32.to_le_bytes());
    two[16..24].copy_from_slice(&9_u64.to_le_bytes());
    assert_eq!(read(Format::Vscsi2, &two).unwrap(), [record(Some(0), 0, Write, 9 * 512, 512)]);
    let error = read(Format::Vscsi2, &two[..39]).unwrap_err();
    assert!(error.message.contains("truncated"), "{error}");
    let error = read(Format::Vscsi1, &two[..32]).unwrap_err();
    assert!(error.message.contains("version"), "{error}");
}

#[test]
fn srt_disksim_lis_and_plain() {
    let got =
        read(Format::Srt, b"time_s,dev,blkno,bytes,is_read,is_async,service_us\n0.5,1,1056,4096,1,0,19513\n");
    assert_eq!(got.unwrap(), [record(Some(0), 1, Read, 1056 * 512, 4096)]);
    let got = read(Format::DiskSim, b"0.25 0 100 8 1\n0.50 0 108 8 0\n").unwrap();
    assert_eq!(got, [record(Some(0), 0, Read, 51_200, 4096), record(Some(250), 0, Write, 55_296, 4096)]);
    let got = read(Format::Lis, b"230027 8 0 0\n1 1 0 1\n").unwrap();
    assert_eq!(got, [record(None, 0, Read, 230_027 * 4096, 32_768), record(None, 0, Read, 4096, 4096)]);
    let got = read(Format::Blocks, b"3\n*\n5").unwrap();
    assert_eq!(got, [record(None, 0, Read, 3 * 4096, 4096), record(None, 0, Read, 5 * 4096, 4096)]);
}

#[test]
fn access_logs() {
    let text = br#"1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /a.png HTTP/1.1" 200 203023 "-" "agent"
1.2.3.4 - - [17/May/2015:12:05:05 +0200] "GET /b HTTP/1.1" 206 10
1.2.3.4 - - [17/May/2015:10:05:04 +0000] "GET /a.png?x=1 HTTP/1.1" 200 203023 "-" "agent \" with quote"
1.2.3.4 - - [17/May/2015:10:05:05 +0000] "POST /b HTTP/1.1" 200 10
1.2.3.4 - - [17/May/2015:10:05:05 +0000] "GET /b HTTP/1.1" 304 -
"#;
    let mut reader = Reader::new(&text[..], Format::AccessLog, Options::default());
    let got: Vec<Record> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    let whole =
        |at_s: u64| Record { end: Some(203_023), ..record(Some(at_s * 1_000_000), 0, Read, 0, 203_023) };
    assert_eq!(got, [whole(0), record(Some(2_000_000), 1, Read, 0, 10), whole(2)]);
    assert_eq!(reader.reordered(), 1);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (format, text, line, why) in [
        (Format::Spc, "0,1,512,R,0.1\n0,-5,512,R,0.2\n", 2, "negative"),
        (Format::Spc, "0,1,512,R,0.2\n0,1,512,R,0.1\n", 2, "backwards by 0.1"),
        (Format::Spc, "0,1,512,R\n", 1, "ends before its time"),
        (Format::Spc, "0,99999999999999999999,512,R,0\n", 1, "too large"),
        (Format::Spc, "0,9999999999999,512,R,0\n", 1, "4 PiB"),
        (Format::Spc, "0,1,0,R,0\n", 1, "no bytes"),
        (Format::Spc, "0,1,512,X,0\n", 1, "neither R nor W"),
        (Format::Spc, "128166372003061629,usr,0,Read,7014609920,24576,41286\n", 1, "not credible"),
        (Format::Msr, "0,1,512,R,0.1\n", 1, "neither Read nor Write"),
        (Format::Lis, "1 2 0\n", 1, "ends before its sequence"),
        (Format::Blocks, "1\n2\nx\n", 3, "not a number"),
        (Format::Blocks, "18446744073709551615\n", 1, "too large"),
        (Format::AccessLog, "hello\n", 1, "[time]"),
        (Format::AccessLog, "- [17/Mai/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n", 1, "is not like"),
        (Format::DiskSim, "0.5 0 1 1\n", 1, "ends before its flags"),
    ] {
        let error = read(format, text.as_bytes()).unwrap_err();
        assert_eq!(error.line, line, "{format}: {text}: {error}");
        assert!(error.message.contains(why), "{format}: {text}: {error}");
    }
}

#[test]
fn a_lenient_reader_counts_what_it_skips() {
    let options = Options { lenient: true, ..Options::default() };
    let mut reader = Reader::new(&b"1\nx\n3\n-4\n"[..], Format::Blocks, options);
    assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 2);
    assert_eq!((reader.skipped(), reader.lines()), (2, 4));
    assert_eq!(reader.first_skipped().unwrap().line, 2);
}

#[test]
fn an_endless_line_is_refused_even_when_lenient() {
    let text = vec![b'1'; LINE_BYTES_MAX + 10];
    let options = Options { lenient: true, ..Options::default() };
    let error = Reader::new(&text[..], Format::Blocks, options).next().unwrap().unwrap_err();
    assert!(error.message.contains("longer than"), "{error}");
}

proptest::proptest! {
    /// Whatever the bytes, a reader neither panics nor yields a request that breaks its promises.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400), lenient: bool) {
        for format in Format::ALL {
            let mut last = Nanos::ZERO;
            for record in Reader::new(&bytes[..], format, Options { lenient, block_bytes: 4096 }).flatten() {
                assert!(record.bytes > 0 && record.offset + record.bytes <= OFFSET_MAX);
                let at = record.at.unwrap_or(last);
                assert!(at >= last);
                last = at;
            }
        }
    }

    /// Digits, commas and signs in every order.
    #[test]
    fn nearly_right_lines_are_survived(text in "[0-9RWx,. \\-\\n*\\[\\]\"/:+]{0,200}") {
        for format in Format::ALL {
            for record in Reader::new(text.as_bytes(), format, Options { lenient: true, block_bytes: 512 }).flatten() {
                assert!(record.bytes > 0 && record.offset + record.bytes <= OFFSET_MAX);
            }
        }
    }
}
