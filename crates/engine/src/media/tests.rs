use super::*;
use mp4_atom::{Atom, Encode, Mehd, Mvhd, Sidx};
use std::io::Write as _;

fn atom(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes).unwrap();
    bytes
}

fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
}

fn mvhd(duration: u64, timescale: u32) -> Vec<u8> {
    atom(&Mvhd {
        creation_time: 0,
        modification_time: 0,
        timescale,
        duration,
        rate: 1.into(),
        volume: 1.into(),
        matrix: Default::default(),
        next_track_id: 2,
    })
}

fn ftyp() -> Vec<u8> {
    boxed(b"ftyp", b"isom\0\0\x02\0isom")
}

/// Padding of media data so that the file is `size` bytes long.
fn filled(mut file: Vec<u8>, size: usize) -> Vec<u8> {
    let rest = size - file.len();
    file.extend(boxed(b"mdat", &vec![7; rest - 8]));
    file
}

/// The bitrate of a file wholly in memory.
fn rate(file: &[u8]) -> Result<Option<u64>, Lie> {
    bitrate(file.len() as u64, &mut |offset, len| {
        let end = (offset + len).min(file.len() as u64);
        file.get(offset as usize..end as usize).map(<[u8]>::to_vec)
    })
}

#[test]
fn a_movie_in_front_and_at_the_end() {
    let moov = boxed(b"moov", &mvhd(8_000, 1000));
    let front = filled([ftyp(), moov.clone()].concat(), 400_000);
    assert_eq!(rate(&front), Ok(Some(50_000)));
    let mut end = filled(ftyp(), 400_000 - moov.len());
    end.extend(&moov);
    assert_eq!(rate(&end), Ok(Some(50_000)));
    // Its end is not in memory yet: nothing is said, and nothing read.
    let mut asked = 0;
    let partly = bitrate(400_000, &mut |offset, len| {
        asked += 1;
        (offset + len <= 200_000).then(|| end[offset as usize..(offset + len) as usize].to_vec())
    });
    assert_eq!((partly, asked), (Ok(None), 4));
}

#[test]
fn fragments_and_indices() {
    let mehd = atom(&Mehd { fragment_duration: 16_000 });
    let moov = boxed(b"moov", &[mvhd(0, 1000), boxed(b"mvex", &mehd)].concat());
    assert_eq!(rate(&filled([ftyp(), moov].concat(), 400_000)), Ok(Some(25_000)));
    let reference = |kind, ticks| mp4_atom::SegmentReference {
        reference_type: kind,
        referenced_size: 1000,
        subsegment_duration: ticks,
        starts_with_sap: true,
        sap_type: 1,
        sap_delta_time: 0,
    };
    let index = |kind| {
        atom(&Sidx { timescale: 90_000, references: vec![reference(kind, 360_000); 8], ..Sidx::default() })
    };
    let moov = boxed(b"moov", &mvhd(0, 1000));
    let file = |kind| filled([ftyp(), moov.clone(), index(kind)].concat(), 400_000);
    assert_eq!(rate(&file(false)), Ok(Some(12_500)), "eight times four seconds");
    assert_eq!(rate(&file(true)), Ok(None), "an index of indices");
    assert_eq!(rate(&filled([ftyp(), moov.clone()].concat(), 400_000)), Ok(None));
    assert_eq!(Mvhd::KIND, mp4_atom::FourCC::new(b"mvhd"));
}

#[test]
fn lying_movies_are_named() {
    let of = |mvhd: Vec<u8>| rate(&filled([ftyp(), boxed(b"moov", &mvhd)].concat(), 400_000));
    for (lie, why) in [
        (of(mvhd(1, 1_000_000)), "no medium's rate"),
        (of(mvhd(1 << 50, 1)), "no medium's rate"),
        (of(mvhd(5, 0)), "divided by zero"),
        // The movie says it is longer than the file.
        (
            rate(&filled(
                [ftyp(), boxed(b"moov", &[&[0xff, 0xff, 0, 0][..], b"mvhd"].concat())].concat(),
                5_000,
            )),
            "ends outside",
        ),
        (rate(&[ftyp(), vec![0, 0, 0, 3], b"moov".to_vec(), vec![0; 100]].concat()), "impossible size"),
        (of(boxed(b"mvhd", &[9; 100])), "damaged"),
    ] {
        let said = lie.unwrap_err().0;
        assert!(said.contains(why), "{said}");
    }
    // Not known is no lie.
    assert_eq!(of(mvhd(u64::MAX, 1000)), Ok(None));
    assert_eq!(rate(b"plain text, and long enough to be looked at"), Ok(None));
    assert_eq!(rate(&[]), Ok(None));
}

/// An element with a size of eight bytes.
fn element(id: &[u8], body: &[u8]) -> Vec<u8> {
    [id, &(body.len() as u64 | 1 << 56).to_be_bytes(), body].concat()
}

fn matroska(duration: f64, size: usize) -> Vec<u8> {
    let info = [
        element(&[0x2a, 0xd7, 0xb1], &1_000_000u32.to_be_bytes()),
        element(&[0x44, 0x89], &duration.to_be_bytes()),
        element(&[0x4d, 0x80], b"test"),
        element(&[0x57, 0x41], b"test"),
    ]
    .concat();
    let head = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    // Voids before the information, as muxers leave them.
    let mut body = [element(&[0xec], &[0; 40]), element(&[0x15, 0x49, 0xa9, 0x66], &info)].concat();
    let cluster = size - head.len() - body.len() - 12 - 12;
    body.extend(element(&[0x1f, 0x43, 0xb6, 0x75], &vec![0; cluster]));
    [head, element(&[0x18, 0x53, 0x80, 0x67], &body)].concat()
}

#[test]
fn matroska_says_its_duration() {
    assert_eq!(rate(&matroska(8_000.0, 400_000)), Ok(Some(50_000)));
    for (duration, why) in
        [(f64::NAN, "plays for NaN"), (-5.0, "plays for -"), (0.0, "plays for 0"), (1e15, "no medium's rate")]
    {
        let said = rate(&matroska(duration, 400_000)).unwrap_err().0;
        assert!(said.contains(why), "{said}");
    }
    // Cut anywhere it is silent or a lie, never a panic.
    let whole = matroska(8_000.0, 400_000);
    for end in 0..200 {
        let _ = rate(&whole[..end]);
    }
    let moov = filled([ftyp(), boxed(b"moov", &mvhd(8_000, 1000))].concat(), 4_000);
    for end in 0..200 {
        let _ = rate(&moov[..end]);
        for bit in 0..8 {
            let mut damaged = moov.clone();
            damaged[end] ^= 1 << bit;
            let _ = rate(&damaged);
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> (FileId, u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
    regular(path).unwrap()
}

/// What a file on a disk is found to say.
fn told(path: &Path) -> Vec<Told> {
    let (file, size) = regular(path).unwrap();
    let own = fs::File::open(path).unwrap();
    examine(&Look { file, size, source: Arc::new(Source::own(own.into())) })
}

#[test]
fn manifests_speak_of_the_files_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (first, _) = write(&at("film/a.ts"), &[1; 40_000]);
    let (whole, _) = write(&at("film/whole.mp4"), &[2; 300_000]);
    write(&at("film/short.ts"), &[3; 10]);
    write(&at("secret.ts"), &[4; 40_000]);
    let playlist = "#EXTM3U\n#EXT-X-VERSION:4\n#EXT-X-TARGETDURATION:10\n\
        #EXTINF:8,\na.ts?token=1\n#EXTINF:8,\nmissing.ts\n#EXTINF:8,\nshort.ts\n#EXTINF:8,\n../secret.ts\n\
        #EXTINF:8,\nhttp://other/a.ts\n\
        #EXTINF:5,\n#EXT-X-BYTERANGE:100000@0\nwhole.mp4\n#EXTINF:5,\n#EXT-X-BYTERANGE:100000@100000\nwhole.mp4\n\
        #EXT-X-ENDLIST\n";
    write(&at("film/index.m3u8"), playlist.as_bytes());
    let mut found = told(&at("film/index.m3u8"));
    found.sort();
    let mut expected = vec![(first, 5_000), (whole, 20_000)];
    expected.sort();
    assert_eq!(found, expected, "nothing missing, nothing above the folder, no ten bytes for eight seconds");

    let description = |bandwidth: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" mediaPresentationDuration=\"PT30S\">\
             <Period><BaseURL>film/</BaseURL><AdaptationSet>\
             <Representation id=\"1\" bandwidth=\"{bandwidth}\"><BaseURL>whole.mp4</BaseURL></Representation>\
             <Representation id=\"2\" bandwidth=\"40000\"><SegmentList><SegmentURL media=\"a.ts\"/></SegmentList></Representation>\
             <Representation id=\"3\" bandwidth=\"9\"><SegmentTemplate media=\"$Number$.m4s\"/></Representation>\
             </AdaptationSet></Period></MPD>"
        )
    };
    write(&at("manifest.mpd"), description("80000").as_bytes());
    assert_eq!(told(&at("manifest.mpd")), vec![(whole, 10_000), (first, 5_000)]);
    // A bandwidth that its own file and duration contradict is left out; the rest stands.
    write(&at("manifest.mpd"), description("80000000").as_bytes());
    assert_eq!(told(&at("manifest.mpd")), vec![(first, 5_000)]);
    for broken in
        [description("much"), description("80000").replace("</MPD>", ""), "#EXTM3U\n#EXTINF:x,\na\n".into()]
    {
        write(&at("manifest.mpd"), broken.as_bytes());
        assert_eq!(told(&at("manifest.mpd")), vec![], "{broken}");
    }
}

#[test]
fn the_thread_looks_and_tells_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("film.webm");
    let (file, size) = write(&path, &matroska(8_000.0, 400_000));
    let ((looks, to_look), (tell, told)) = channels();
    let bitrates = Arc::new(Bitrates::default());
    spawn("test", to_look, tell, bitrates.clone()).unwrap();
    let shared: std::os::fd::OwnedFd = fs::File::open(&path).unwrap().into();
    looks.send(Look { file, size, source: Arc::new(Source::own(shared)) }).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok((file, 50_000)));
    assert_eq!(bitrates.of(file), Some(50_000), "for the doors too");
    drop(looks);
    assert!(told.recv_timeout(Duration::from_secs(20)).is_err(), "its end of the channel is gone");
}
