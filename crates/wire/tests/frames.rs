//! Golden bytes, truncation, sizes, versions, and two properties: every frame decodes to itself, and no bytes
//! make the decoder panic.

use proptest::prelude::*;
use seekless_wire::*;

const NEED: Need =
    Need { call: Call::Sendfile, pid: 0x01020304, tid: 7, offset: 0x1122_3344_5566, length: 524_288 };
const TRACKED: Tracked = Tracked {
    call: Call::Pread,
    resident: true,
    pid: 1,
    tid: 2,
    device: 0x803,
    inode: 99,
    offset: 4096,
    length: 100,
    duration_ns: 1_500,
};
const ANSWER: Answer = Answer {
    verdict: Verdict::Pass,
    reason: PassReason::NotADisk,
    mode: Mode::Both,
    ring: 0,
    device_ttl_ms: 5_000,
    settings_ttl_ms: 1_000,
    prefetch_bytes: 2 << 20,
    resident_bytes: 0,
};
const SETTINGS: Settings =
    Settings { mode: Mode::Track, ring: 7, settings_ttl_ms: 1_000, prefetch_bytes: 1 << 20 };

const ADD: FileSetAdd = FileSetAdd { range: 9, offset: 4096, length: 8192, address: 1 << 40 };

fn one_of_each() -> Vec<Frame<'static>> {
    vec![
        Frame::Hello(Hello { pid: 42, ring: false }),
        Frame::Need(NEED),
        Frame::Tracked(TRACKED),
        Frame::Working,
        Frame::Answer(ANSWER),
        Frame::Settings(SETTINGS),
        Frame::Refuse(Refuse { reason: RefuseReason::Version, kind: 2 }),
        Frame::RingAsk,
        Frame::Ring,
        Frame::StatusAsk,
        Frame::StatusPart(StatusPart { index: 3, last: true, text: b"{}" }),
        Frame::PassAll { lease_ms: 3_000 },
        Frame::TakeOver { step: TakeOverStep::Offered, ring: 9 },
        Frame::FileSetAsk { window_bytes: 64 << 20 },
        Frame::FileSetAdd(ADD),
        Frame::FileSetTook { range: 9, read: true },
        Frame::FileSet(FileSet { reason: PassReason::None, ranges: 512, window_bytes: 64 << 20 }),
        Frame::FileSetReady(FileSetReady { range: 9, reason: PassReason::DiskError }),
        Frame::Hello(Hello { pid: 42, ring: true }),
        Frame::Release { device: 0x801 },
        Frame::Need(NEED.at_random(true)),
        Frame::Challenge { nonce: 0x0102_0304 },
        Frame::Proof { digest: *b"0123456789abcdef" },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes themselves. A change here needs a new version of the protocol, never an edit of this list.
#[test]
fn golden_bytes() {
    let header = |kind: &str, length: &str| format!("534b4c53010001000100{kind}{length}");
    let golden = [
        header("0100", "14000000") + "2a000000",
        header("0200", "2c000000")
            + "06000000"
            + "04030201"
            + "07000000"
            + "6655443322110000"
            + "0000080000000000",
        header("0300", "44000000")
            + "02010000"
            + "01000000"
            + "02000000"
            + "0308000000000000"
            + "6300000000000000"
            + "0010000000000000"
            + "6400000000000000"
            + "dc05000000000000",
        header("1000", "10000000"),
        header("1100", "2c000000")
            + "02020400"
            + "88130000"
            + "e8030000"
            + "0000200000000000"
            + "0000000000000000",
        header("1200", "20000000") + "01070000" + "e8030000" + "0000100000000000",
        header("1300", "18000000") + "01000000" + "02000000",
        header("0400", "10000000"),
        header("1400", "10000000"),
        header("2000", "10000000"),
        header("2100", "1a000000") + "01000000" + "03000000" + "7b7d",
        header("2200", "14000000") + "b80b0000",
        header("2300", "14000000") + "04090000",
        header("0500", "18000000") + "0000000400000000",
        header("0600", "30000000")
            + "09000000"
            + "00000000"
            + "0010000000000000"
            + "0020000000000000"
            + "0000000000010000",
        header("0700", "18000000") + "09000000" + "01000000",
        header("1500", "20000000") + "00000000" + "00020000" + "0000000400000000",
        header("1600", "18000000") + "09000000" + "04000000",
        header("0100", "14000000") + "2a000080",
        header("2400", "18000000") + "0108000000000000",
        header("0200", "2c000000")
            + "06000000"
            + "04030281"
            + "07000000"
            + "6655443322110000"
            + "0000080000000000",
        header("2500", "18000000") + "0403020100000000",
        header("2600", "20000000") + "30313233343536373839616263646566",
    ];
    for (frame, golden) in one_of_each().iter().zip(&golden) {
        assert_eq!(&hex(frame.encode().unwrap().as_bytes()), golden, "{}", frame.name());
    }
    assert_eq!(golden.len(), one_of_each().len());
}

#[test]
fn a_need_says_whether_its_file_is_read_at_random() {
    assert!(!NEED.reads_at_random() && NEED.at_random(true).reads_at_random());
    assert_eq!(NEED.at_random(true).at_random(false), NEED);
}

#[test]
fn every_frame_reads_back() {
    for frame in one_of_each() {
        let buf = frame.encode().unwrap();
        assert_eq!(Frame::decode_with_versions(buf.as_bytes()), Ok((frame, Versions::OURS)));
    }
}

#[test]
fn every_cut_is_noticed() {
    for frame in one_of_each() {
        let buf = frame.encode().unwrap();
        let whole = buf.as_bytes();
        for end in 0..whole.len() {
            let got = Frame::decode(&whole[..end]);
            assert!(matches!(got, Err(DecodeError::Truncated { have, .. }) if have == end), "{end}: {got:?}");
            // The same cut, with a length field that matches it.
            if end >= HEADER_BYTES && !matches!(frame, Frame::StatusPart(_)) {
                let mut cut = whole[..end].to_vec();
                cut[12..16].copy_from_slice(&(end as u32).to_le_bytes());
                assert!(
                    matches!(Frame::decode(&cut), Err(DecodeError::Truncated { .. })),
                    "{}",
                    frame.name()
                );
            }
        }
    }
}

#[test]
fn every_surplus_is_noticed() {
    for frame in one_of_each() {
        let mut long = frame.encode().unwrap().as_bytes().to_vec();
        long.push(0);
        assert!(matches!(Frame::decode(&long), Err(DecodeError::Oversize { .. })), "{}", frame.name());
        let length = long.len() as u32;
        long[12..16].copy_from_slice(&length.to_le_bytes());
        let got = Frame::decode(&long);
        if !matches!(frame, Frame::StatusPart(_)) {
            assert!(matches!(got, Err(DecodeError::Oversize { .. })), "{}: {got:?}", frame.name());
        }
    }
    let huge = vec![0u8; FRAME_BYTES_MAX + 1];
    assert!(matches!(Frame::decode(&huge), Err(DecodeError::Oversize { max: FRAME_BYTES_MAX, .. })));
}

#[test]
fn wrong_words_are_named() {
    let patched = |frame: Frame<'_>, at: usize, value: u8| {
        let mut bytes = frame.encode().unwrap().as_bytes().to_vec();
        bytes[at] = value;
        Frame::decode(&bytes).map(|f| f.name()).unwrap_err()
    };
    let field = |name, value| DecodeError::Field { name, value };
    assert_eq!(patched(Frame::Working, 0, b'X'), DecodeError::Magic(*b"XKLS"));
    assert_eq!(patched(Frame::Working, 10, 77), DecodeError::Kind(77));
    assert_eq!(patched(Frame::Need(NEED), 16, 200), field("call", 200));
    assert_eq!(patched(Frame::Need(NEED), 17, 1), field("reserved", 1));
    assert_eq!(patched(Frame::Answer(ANSWER), 16, 0), field("verdict", 0));
    assert_eq!(patched(Frame::Answer(ANSWER), 17, 99), field("reason", 99));
    assert_eq!(patched(Frame::Settings(SETTINGS), 16, 5), field("mode", 5));
    assert_eq!(patched(Frame::Tracked(TRACKED), 17, 2), field("resident", 2));
    assert_eq!(patched(Frame::FileSetAdd(ADD), 20, 1), field("reserved", 1));
    assert_eq!(patched(Frame::FileSetTook { range: 1, read: true }, 20, 2), field("read", 2));
    for add in [FileSetAdd { length: 0, ..ADD }, FileSetAdd { offset: u64::MAX, ..ADD }] {
        let bytes = Frame::FileSetAdd(add).encode().unwrap();
        assert!(matches!(Frame::decode(bytes.as_bytes()), Err(DecodeError::Field { .. })), "{add:?}");
    }
    for need in
        [Need { length: 0, ..NEED }, Need { offset: u64::MAX, ..NEED }, Need { length: 1 << 63, ..NEED }]
    {
        let bytes = Frame::Need(need).encode().unwrap();
        assert!(matches!(Frame::decode(bytes.as_bytes()), Err(DecodeError::Field { .. })), "{need:?}");
    }
}

/// A frame from a newer version is refused with this build's range, so that the sender can go down.
#[test]
fn newer_versions_come_down() {
    let mut future = Frame::Working.encode().unwrap().as_bytes().to_vec();
    future[4..6].copy_from_slice(&9u16.to_le_bytes());
    future[8..10].copy_from_slice(&9u16.to_le_bytes());
    let theirs = Versions { oldest: 1, newest: 9 };
    assert_eq!(Frame::decode(&future), Err(DecodeError::Version { written: 9, theirs }));
    assert_eq!(common_version(theirs, Versions::OURS), Some(VERSION));

    // Written in this build's version by a newer sender: it decodes, with the sender's range.
    future[4..6].copy_from_slice(&VERSION.to_le_bytes());
    assert_eq!(Frame::decode_with_versions(&future), Ok((Frame::Working, theirs)));

    let v = |oldest, newest| Versions { oldest, newest };
    assert_eq!(common_version(v(1, 3), v(2, 5)), Some(3));
    assert_eq!(common_version(v(4, 5), v(2, 4)), Some(4));
    assert_eq!(common_version(v(4, 5), v(1, 3)), None);
    assert_eq!(common_version(v(3, 1), v(1, 3)), None);
}

#[test]
fn status_text_goes_in_pieces_and_comes_together() {
    for length in [0, 1, STATUS_PART_BYTES_MAX, STATUS_PART_BYTES_MAX + 1, 100_000] {
        let text = "é".repeat(length / 2) + if length % 2 == 1 { "x" } else { "" };
        let mut joined = Vec::new();
        let parts: Vec<_> = StatusParts::new(&text).collect();
        for (i, part) in parts.iter().enumerate() {
            let buf = part.encode().unwrap();
            let Ok(Frame::StatusPart(p)) = Frame::decode(buf.as_bytes()) else { panic!("piece {i}") };
            assert_eq!((p.index as usize, p.last), (i, i + 1 == parts.len()));
            joined.extend_from_slice(p.text);
        }
        assert_eq!(String::from_utf8(joined).unwrap(), text);
    }
    let over = "x".repeat(STATUS_BYTES_MAX + 5);
    let sent: usize = StatusParts::new(&over)
        .map(|p| match p {
            Frame::StatusPart(p) => p.text.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(sent, STATUS_BYTES_MAX);
    let long = vec![b'x'; STATUS_PART_BYTES_MAX + 1];
    assert!(Frame::StatusPart(StatusPart { index: 0, last: true, text: &long }).encode().is_none());
}

#[test]
fn a_small_buffer_is_refused() {
    for frame in one_of_each() {
        let need = frame.encode().unwrap().as_bytes().len();
        let mut out = vec![0u8; need];
        assert!(frame.encode_into(&mut out[..need - 1]).is_none());
        assert_eq!(frame.encode_into(&mut out).map(<[u8]>::len), Some(need));
    }
}

#[test]
fn modes_read_as_written() {
    for mode in Mode::ALL {
        assert_eq!(mode.name().parse::<Mode>(), Ok(*mode));
    }
    assert_eq!("serialize".parse::<Mode>(), Ok(Mode::Serialise));
    assert!("fast".parse::<Mode>().unwrap_err().contains("serialise"));
}

fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(move |i| all[i])
}

fn any_frame() -> impl Strategy<Value = (Frame<'static>, Vec<u8>)> {
    let need = (any_of(Call::ALL), any::<u32>(), any::<u32>(), 0..1u64 << 62, 1..1u64 << 62)
        .prop_map(|(call, pid, tid, offset, length)| Frame::Need(Need { call, pid, tid, offset, length }));
    let tracked = (any_of(Call::ALL), any::<bool>(), any::<(u32, u32, u64, u64, u64, u64, u64)>()).prop_map(
        |(call, resident, (pid, tid, device, inode, offset, length, duration_ns))| {
            Frame::Tracked(Tracked { call, resident, pid, tid, device, inode, offset, length, duration_ns })
        },
    );
    let answer =
        (any_of(Verdict::ALL), any_of(PassReason::ALL), any_of(Mode::ALL), any::<(u8, u32, u32, u64, u64)>())
            .prop_map(
                |(
                    verdict,
                    reason,
                    mode,
                    (ring, device_ttl_ms, settings_ttl_ms, prefetch_bytes, resident_bytes),
                )| {
                    Frame::Answer(Answer {
                        verdict,
                        reason,
                        mode,
                        ring,
                        device_ttl_ms,
                        settings_ttl_ms,
                        prefetch_bytes,
                        resident_bytes,
                    })
                },
            );
    let settings = (any_of(Mode::ALL), any::<(u8, u32, u64)>()).prop_map(
        |(mode, (ring, settings_ttl_ms, prefetch_bytes))| {
            Frame::Settings(Settings { mode, ring, settings_ttl_ms, prefetch_bytes })
        },
    );
    let add = (any::<u32>(), 0..1u64 << 62, 1..1u64 << 62, any::<u64>()).prop_map(
        |(range, offset, length, address)| Frame::FileSetAdd(FileSetAdd { range, offset, length, address }),
    );
    let file_set = (any_of(PassReason::ALL), any::<u32>(), any::<u64>())
        .prop_map(|(reason, ranges, window_bytes)| Frame::FileSet(FileSet { reason, ranges, window_bytes }));
    let ready = (any::<u32>(), any_of(PassReason::ALL))
        .prop_map(|(range, reason)| Frame::FileSetReady(FileSetReady { range, reason }));
    let refuse = (any_of(RefuseReason::ALL), any::<u16>())
        .prop_map(|(reason, kind)| Frame::Refuse(Refuse { reason, kind }));
    let text = proptest::collection::vec(any::<u8>(), 0..=STATUS_PART_BYTES_MAX);
    let plain = prop_oneof![
        (0..1u32 << 31, any::<bool>()).prop_map(|(pid, ring)| Frame::Hello(Hello { pid, ring })),
        Just(Frame::Working),
        Just(Frame::RingAsk),
        Just(Frame::Ring),
        Just(Frame::StatusAsk),
        any::<u32>().prop_map(|lease_ms| Frame::PassAll { lease_ms }),
        any::<u64>().prop_map(|device| Frame::Release { device }),
        (any_of(TakeOverStep::ALL), any::<u8>()).prop_map(|(step, ring)| Frame::TakeOver { step, ring }),
        any::<u64>().prop_map(|window_bytes| Frame::FileSetAsk { window_bytes }),
        any::<(u32, bool)>().prop_map(|(range, read)| Frame::FileSetTook { range, read }),
        add,
        file_set,
        ready,
        need,
        tracked,
        answer,
        settings,
        refuse,
        // Its text comes from the vector beside it.
        any::<(u32, bool)>().prop_map(|(index, last)| Frame::StatusPart(StatusPart {
            index,
            last,
            text: b""
        })),
    ];
    (plain, text)
}

proptest! {
    #[test]
    fn what_is_written_reads_back((frame, text) in any_frame()) {
        let frame = match frame {
            Frame::StatusPart(p) => Frame::StatusPart(StatusPart { text: &text, ..p }),
            other => other,
        };
        let buf = frame.encode().unwrap();
        prop_assert!(buf.as_bytes().len() <= FRAME_BYTES_MAX);
        prop_assert_eq!(Frame::decode(buf.as_bytes()), Ok(frame));
    }

    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Frame::decode(&bytes).is_err() || bytes.starts_with(&MAGIC));
    }

    /// A damaged frame is refused, or decodes to a frame that encodes to the same bytes (except the header's
    /// version range, which is the sender's own): no packet has two readings.
    #[test]
    fn damaged_frames_are_refused_or_canonical(
        (frame, _) in any_frame(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = frame.encode().unwrap().as_bytes().to_vec();
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(read) = Frame::decode(&bytes) {
            let again = read.encode().unwrap();
            prop_assert_eq!(&again.as_bytes()[10..], &bytes[10..]);
        }
    }
}
