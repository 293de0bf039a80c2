//! A packet from anybody: decoded or refused with a reason, and what is decoded is written again as it was.

use seekless_wire::{
    FRAME_BYTES_MAX, Frame, HEADER_BYTES, STATUS_BYTES_MAX, StatusParts, Versions, common_version,
};

/// One packet.
pub fn run(data: &[u8]) {
    match Frame::decode_with_versions(data) {
        Ok((frame, versions)) => {
            assert!(data.len() >= HEADER_BYTES && data.len() <= FRAME_BYTES_MAX);
            // A sender may claim any range of versions; one that is none has nothing in common with ours.
            let common = common_version(versions, Versions::OURS);
            assert!(common.is_none_or(|v| (versions.oldest..=versions.newest).contains(&v)));
            let again = frame.encode().expect("what was decoded fits");
            let (same, ours) = Frame::decode_with_versions(again.as_bytes()).expect("our own frame");
            assert_eq!(format!("{frame:?}"), format!("{same:?}"));
            assert_eq!(ours, Versions::OURS);
            // All but the versions in its header is the same.
            assert_eq!(&again.as_bytes()[HEADER_BYTES..], &data[HEADER_BYTES..]);
            let mut small = [0; 24];
            if let Some(bytes) = frame.encode_into(&mut small) {
                assert_eq!(bytes, again.as_bytes());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let text = String::from_utf8_lossy(data);
    let parts: Vec<Vec<u8>> = StatusParts::new(&text)
        .map(|part| {
            let sent = part.encode().expect("a piece fits");
            match Frame::decode(sent.as_bytes()) {
                Ok(Frame::StatusPart(read)) => read.text.to_vec(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert!(parts.concat().len() <= STATUS_BYTES_MAX);
    assert!(text.as_bytes().starts_with(&parts.concat()));
}
