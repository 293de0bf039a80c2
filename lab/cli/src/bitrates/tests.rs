use std::fs;
use std::path::Path;

use mp4_atom::{Atom, Encode, Mehd, Mvhd, Sidx};

use crate::bitrates::cli::search;
use crate::bitrates::header::{Implausible, bitrate};
use crate::bitrates::look::{Parsed, parse};
use crate::bitrates::walk::Walk;

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

/// The bitrate of a whole file.
fn rate(file: &[u8]) -> Result<Option<u64>, Implausible> {
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
    // Its end cannot be had: nothing is said, and nothing more read.
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

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Bitrates and reasons that are found below a folder, parsed in this process.
fn found(dir: &Path) -> (Vec<(String, u64)>, Vec<String>) {
    let table = search(Walk::of(dir).unwrap(), &mut |file| Ok(parse(file))).unwrap();
    let json = table.json(dir);
    let list = |name: &str| json[name].as_array().unwrap().clone();
    let name = |path: &serde_json::Value| {
        let path = path.as_str().unwrap().to_string();
        path.strip_prefix(&format!("{}/", dir.display())).unwrap().to_string()
    };
    let rates =
        list("bitrates").iter().map(|r| (name(&r["path"]), r["bytes_per_s"].as_u64().unwrap())).collect();
    let reasons = list("left_out").into_iter();
    (rates, reasons.map(|l| format!("{}: {}", name(&l["path"]), l["why"].as_str().unwrap())).collect())
}

fn rates(told: &[(&str, u64)]) -> Vec<(String, u64)> {
    told.iter().map(|&(name, rate)| (name.to_string(), rate)).collect()
}

#[test]
fn manifests_speak_of_the_files_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("film/a.ts"), &[1; 40_000]);
    write(&at("film/whole.mp4"), &[2; 300_000]);
    write(&at("film/short.ts"), &[3; 10]);
    write(&at("secret.ts"), &[4; 40_000]);
    let playlist = "#EXTM3U\n#EXT-X-VERSION:4\n#EXT-X-TARGETDURATION:10\n\
        #EXTINF:8,\na.ts?token=1\n#EXTINF:8,\nmissing.ts\n#EXTINF:8,\nshort.ts\n#EXTINF:8,\n../secret.ts\n\
        #EXTINF:8,\nhttp://other/a.ts\n\
        #EXTINF:5,\n#EXT-X-BYTERANGE:100000@0\nwhole.mp4\n#EXTINF:5,\n#EXT-X-BYTERANGE:100000@100000\nwhole.mp4\n\
        #EXT-X-ENDLIST\n";
    write(&at("film/index.m3u8"), playlist.as_bytes());
    let (told, left_out) = found(dir.path());
    assert_eq!(told, rates(&[("film/a.ts", 5_000), ("film/whole.mp4", 20_000)]), "nothing above the folder");
    assert_eq!(left_out.len(), 1, "no ten bytes for eight seconds: {left_out:?}");
    assert!(left_out[0].starts_with("film/short.ts: a manifest says "), "{left_out:?}");
    fs::remove_file(at("film/index.m3u8")).unwrap();

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
    assert_eq!(found(dir.path()).0, rates(&[("film/a.ts", 5_000), ("film/whole.mp4", 10_000)]));
    // A bandwidth that its own file and duration contradict is left out; the rest stands.
    write(&at("manifest.mpd"), description("80000000").as_bytes());
    assert_eq!(found(dir.path()).0, rates(&[("film/a.ts", 5_000)]));
    for (broken, reasons) in [
        (description("much"), 1),
        (description("80000").replace("</MPD>", ""), 1),
        ("#EXTM3U\n#EXTINF:x,\na\n".into(), 0),
    ] {
        write(&at("manifest.mpd"), broken.as_bytes());
        let (told, left_out) = found(dir.path());
        assert_eq!((told.len(), left_out.len()), (0, reasons), "{broken}: {left_out:?}");
    }
}

#[test]
fn a_header_outdoes_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a.webm"), &matroska(8_000.0, 400_000));
    write(&dir.path().join("a.m3u8"), b"#EXTM3U\n#EXTINF:4,\na.webm\n#EXT-X-ENDLIST\n");
    assert_eq!(found(dir.path()), (rates(&[("a.webm", 50_000)]), Vec::new()));
}

/// A folder of links, each to something that is another's.
#[test]
fn no_link_is_followed_and_no_manifest_reaches_through_one() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("theirs/film.ts"), &[1; 40_000]);
    write(&at("theirs/film.webm"), &matroska(8_000.0, 400_000));
    fs::create_dir(at("mine")).unwrap();
    symlink("../theirs", at("mine/folder")).unwrap();
    symlink("../theirs/film.webm", at("mine/film.webm")).unwrap();
    let playlist = "#EXTM3U\n#EXTINF:8,\nfolder/film.ts\n#EXTINF:8,\nfilm.webm\n#EXTINF:8,\nfolder/../../theirs/film.ts\n\
        #EXT-X-ENDLIST\n";
    write(&at("mine/list.m3u8"), playlist.as_bytes());
    assert_eq!(found(&at("mine")), (Vec::new(), Vec::new()));
}

#[test]
fn a_manifest_speaks_for_its_owner_s_files_alone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users' files");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("a.ts"), &[1; 40_000]);
    write(&at("list.m3u8"), b"#EXTM3U\n#EXTINF:8,\na.ts\n#EXT-X-ENDLIST\n");
    assert_eq!(found(dir.path()).0, rates(&[("a.ts", 5_000)]));
    std::os::unix::fs::chown(at("list.m3u8"), Some(65_534), None).unwrap();
    assert_eq!(found(dir.path()), (Vec::new(), Vec::new()));
}

/// Descriptions of at most 256 KiB that unfold to gigabytes, or would be walked for ever.
#[test]
fn a_manifest_does_not_unfold() {
    const SIZE: usize = 250_000;
    let mpd = |inside: &str| format!("<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\">{inside}</MPD>");
    let set = |inside: String| mpd(&format!("<Period><AdaptationSet>{inside}</AdaptationSet></Period>"));
    let segment = "<SegmentURL media=\"a\"/>";
    let list = |base: usize, of: usize| {
        let segments = segment.repeat((of - base) / segment.len());
        set(format!(
            "<Representation bandwidth=\"9\"><BaseURL>{}</BaseURL><SegmentList>{segments}</SegmentList></Representation>",
            "x".repeat(base)
        ))
    };
    let entities = format!(
        "<!DOCTYPE MPD [<!ENTITY a \"{}\">]><MPD>urn:mpeg:dash:schema:mpd {}</MPD>",
        "x".repeat(SIZE / 2),
        "&a;".repeat(SIZE / 8)
    );
    for (text, why) in [
        (list(SIZE / 2, SIZE), "an address has more than 4096 bytes"),
        (list(4_000, SIZE), "more than 1048576 bytes together"),
        (list(1, SIZE), "it names more than 4096 files"),
        (mpd(&"<i/>".repeat(SIZE / 4)), "nodes limit reached"),
        (entities, "DTD detected"),
        (set("<b>".repeat(SIZE / 3)), "no XML that can be read"),
    ] {
        assert!(text.len() <= 256 << 10, "{}", text.len());
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
        match parse(file) {
            Parsed::Refused(said) => assert!(said.contains(why), "{said}"),
            said => assert_eq!(said, Parsed::Nothing, "{why}"),
        }
    }
}

#[test]
fn what_is_too_long_is_named() {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"#EXTM3U\n", 0).unwrap();
    file.set_len((256 << 10) + 1).unwrap();
    assert_eq!(parse(file), Parsed::Refused("a manifest of 262145 bytes is longer than 262144".into()));
}
