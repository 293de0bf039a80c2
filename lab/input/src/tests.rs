use std::fs;
use std::io::Write;

use lzma_rust2::{XzOptions, XzWriter};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use seekless_base::Exit;

use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

type Packer = fn(&[u8]) -> Vec<u8>;

const PACKERS: [(Packing, Packer); 3] = [(Packing::Gzip, gzip), (Packing::Xz, xz), (Packing::Zstd, zstd)];

/// Lines that repeat and differ, as those of a log do.
fn text(lines: u64) -> Vec<u8> {
    (0..lines)
        .flat_map(|i| format!("10.0.0.{} GET /videos/{}.mp4 206\n", i % 7, i * i).into_bytes())
        .collect()
}

/// What comes out of bytes that begin as a packed file does.
fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    assert!(Packing::of(packed).is_some(), "it begins as packed files do");
    let mut out = Vec::new();
    unpacked(io::Cursor::new(packed.to_vec()))?.read_to_end(&mut out).map(|_| out)
}

#[test]
fn packed_streams_are_read_whole_in_one_frame_or_several() {
    // Several times the read buffer, so that streams straddle its ends.
    let (one, two) = (text(40_000), text(3));
    assert!(one.len() > 4 * BUFFER_BYTES);
    for (packing, pack) in PACKERS {
        let packed = pack(&one);
        assert_eq!(Packing::of(&packed), Some(packing));
        assert!(unpack(&packed).unwrap() == one, "{packing:?}");
        // As `cat a.gz b.gz` makes them.
        let both = [packed, pack(&two)].concat();
        assert!(unpack(&both).unwrap() == [&one[..], &two[..]].concat(), "{packing:?}");
    }
    // As pzstd writes them: a frame to be skipped before each that counts.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &zstd(&two)].concat();
    assert_eq!(unpack(&skipped.repeat(2)).unwrap(), two.repeat(2));
}

#[test]
fn a_pipe_may_hand_over_byte_by_byte() {
    let text = text(20);
    for bytes in [text.clone(), gzip(&text), xz(&text), zstd(&text), b"ab".to_vec(), vec![]] {
        let expected = if bytes.len() < 6 { bytes.clone() } else { text.clone() };
        let trickle = BufReader::with_capacity(1, io::Cursor::new(bytes));
        let mut out = Vec::new();
        unpacked(trickle).unwrap().read_to_end(&mut out).unwrap();
        assert!(out == expected);
    }
}

#[test]
fn other_programs_files_are_read() {
    let text = b"0,8,4096,R,0.0\n0,16,4096,R,0.1\n0,8,8192,W,0.2\n";
    for packed in [XZ, ZST, &[XZ, XZ_EMPTY].concat()] {
        assert_eq!(unpack(packed).unwrap(), text);
    }
    assert_eq!(unpack(XZ_EMPTY).unwrap(), b"");
}

#[test]
fn a_damaged_or_short_stream_is_an_error_and_never_another_text() {
    let text = text(60);
    for (packing, pack) in PACKERS {
        let packed = pack(&text);
        let said = |result: io::Result<Vec<u8>>| {
            let error = result.expect_err("not whole").to_string();
            assert!(error.starts_with(&format!("damaged or cut short ({}", packing.name())), "{error}");
            assert!(!error.contains('\n'), "{error}");
        };
        for len in 6..packed.len() {
            said(unpack(&packed[..len]));
        }
        let mut found = 0;
        for bit in 6 * 8..packed.len() * 8 {
            let mut changed = packed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            match unpack(&changed) {
                // Flags and times in a header say nothing of the content.
                Ok(out) => assert!(out == text, "{packing:?}: bit {bit} changes the text unnoticed"),
                error => {
                    said(error);
                    found += 1;
                }
            }
        }
        assert!(found * 10 > packed.len() * 8 * 9, "{packing:?}: only {found} changed bits were seen");
    }
}

#[test]
fn a_file_tells_its_name_and_how_far_it_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = text(1000);
    for (name, bytes) in [("a.log", text.clone()), ("a.log.gz", gzip(&text)), ("empty", vec![])] {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let mut input = open(&path).unwrap();
        let mut out = Vec::new();
        input.bytes.read_to_end(&mut out).unwrap();
        assert!(out == if bytes.is_empty() { vec![] } else { text.clone() });
        assert_eq!((input.progress.read(), input.progress.total()), (bytes.len() as u64, bytes.len() as u64));
        assert_eq!(input.name, name.trim_end_matches(".gz"));
    }
    let refused = |path: &Path| open(path).err().map(|fault| fault.exit);
    assert_eq!(refused(&dir.path().join("nothing")), Some(Exit::Missing));
    assert_eq!(refused(dir.path()), Some(Exit::Usage));
}

/// Three lines by xz 5.
#[rustfmt::skip]
const XZ: &[u8] = &[
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00, 0x00, 0x00,
    0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x00, 0x2d, 0x00, 0x25, 0x5d, 0x00, 0x18, 0x0b, 0x03, 0x75, 0x30, 0xbe, 0x83, 0xb1, 0x6e,
    0x5f, 0x75, 0xcb, 0xab, 0xc9, 0xdf, 0x9a, 0x0d, 0x51, 0x66, 0x01, 0xe3, 0xb8, 0xd8, 0x5f, 0x35, 0x22, 0xc7, 0x9b, 0xc2,
    0xc3, 0xda, 0x83, 0x6c, 0xe5, 0xb2, 0xac, 0x80, 0x00, 0x00, 0x00, 0x00, 0xff, 0x89, 0x06, 0xee, 0x52, 0xab, 0xe4, 0x4b,
    0x00, 0x01, 0x41, 0x2e, 0xa0, 0xc6, 0x32, 0x15, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
];

/// The same by zstd 1.5.
#[rustfmt::skip]
const ZST: &[u8] = &[
    0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x2e, 0x5d, 0x01, 0x00, 0x44, 0x02, 0x30, 0x2c, 0x38, 0x2c, 0x34, 0x30, 0x39, 0x36, 0x2c,
    0x52, 0x2c, 0x30, 0x2e, 0x30, 0x0a, 0x30, 0x2c, 0x31, 0x36, 0x31, 0x0a, 0x30, 0x2c, 0x38, 0x2c, 0x38, 0x31, 0x39, 0x32,
    0x2c, 0x57, 0x2c, 0x30, 0x2e, 0x32, 0x0a, 0x01, 0x00, 0x67, 0x9b, 0x61, 0x6c, 0x7c, 0xaa, 0x41,
];

/// Nothing by xz 5.
#[rustfmt::skip]
const XZ_EMPTY: &[u8] = &[
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x00, 0x00, 0x00, 0x00, 0x1c, 0xdf, 0x44, 0x21,
    0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
];
