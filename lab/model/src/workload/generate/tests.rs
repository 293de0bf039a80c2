use super::*;

#[test]
fn a_permutation_meets_every_number_once() {
    for n in [1, 2, 5, 64, 1000, 4097] {
        let p = Permutation::new(n, 12345);
        let mut seen: Vec<u64> = (0..n).map(|i| p.at(i)).collect();
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, v)| i as u64 == *v), "{n}");
    }
}

/// Share of requests that do not begin where one of the last 64 of the same context ended, footprint in
/// pages, pages in all.
fn measure(kind: Kind, scale: f64, seed: u64) -> (f64, u64, u64) {
    measure_shape(kind, scale, seed, Shape::default(), 64)
}

/// The same of another shape, by so many ends.
fn measure_shape(kind: Kind, scale: f64, seed: u64, shape: Shape, under_way: usize) -> (f64, u64, u64) {
    let mut ends = std::collections::VecDeque::new();
    let mut touched = std::collections::HashSet::new();
    let (mut requests, mut random, mut pages) = (0_u64, 0_u64, 0);
    for r in kind.of_shape(scale, seed, shape) {
        requests += 1;
        random += u64::from(!ends.contains(&(r.context, r.offset)));
        ends.push_back((r.context, r.offset + r.bytes));
        if ends.len() > under_way {
            ends.pop_front();
        }
        pages += r.bytes / PAGE_BYTES;
        touched.extend((r.offset / PAGE_BYTES..(r.offset + r.bytes) / PAGE_BYTES).map(|p| (r.device, p)));
        assert!(r.offset + r.bytes <= r.end.unwrap());
    }
    (random as f64 / requests as f64, touched.len() as u64, pages)
}

#[test]
fn random_shares_and_footprints_are_the_papers() {
    for kind in Kind::ALL {
        let (random, footprint, pages) = measure(kind, 0.05, 1);
        println!("{}: {random:.4} random, {footprint} pages touched of {pages}", kind.name());
        assert!((random - kind.random_share()).abs() < 0.012, "{}: {random}", kind.name());
        let ratio = footprint as f64 / kind.footprint_pages(0.05) as f64;
        assert!((0.8..1.02).contains(&ratio), "{}: footprint {ratio}", kind.name());
    }
}

#[test]
fn same_seed_same_trace() {
    for kind in Kind::ALL {
        let a: Vec<_> = kind.generate(0.002, 7).collect();
        assert_eq!(a, kind.generate(0.002, 7).collect::<Vec<_>>());
        assert_ne!(a, kind.generate(0.002, 8).collect::<Vec<_>>());
    }
}

#[test]
fn a_drawn_shape_is_within_its_ranges_and_keeps_what_pfc_states() {
    for seed in 1..=20 {
        let shape = Shape::drawn(seed);
        assert!(ranges::RATE.contains(&shape.rate) && ranges::SCANS.contains(&shape.scans), "{shape:?}");
        assert!(
            ranges::SCAN_REQUESTS.contains(&shape.scan_requests) && ranges::PASSES.contains(&shape.passes)
        );
        assert!(ranges::REVISITS.contains(&shape.revisits) && ranges::POPULAR.contains(&shape.popular));
        assert_eq!(shape, Shape::drawn(seed));
    }
    assert_ne!(Shape::drawn(1), Shape::drawn(2));
    // Not shaped is the default shape.
    for kind in Kind::ALL {
        let (plain, shaped) = (kind.generate(0.01, 3), kind.of_shape(0.01, 3, Shape::default()));
        assert!(plain.take(100).eq(shaped.take(100)));
    }
}

#[test]
fn scans_of_any_number_and_length_keep_what_pfc_states() {
    let plain = Shape::default();
    let scans = [20.0, 80.0, 320.0].map(|scans| (Kind::Oltp, Shape { scans, ..plain }));
    let lengths = [10.0, 1024.0].map(|scan_requests| (Kind::Oltp, Shape { scan_requests, ..plain }));
    for (kind, shape) in scans.into_iter().chain(lengths) {
        // Many scans are asked for in turn: the end of one stays where it goes on for longer.
        let (random, footprint, pages) = measure_shape(kind, 0.05, 1, shape, 512);
        println!("{random:.4} random, {footprint} of {pages} pages touched: {shape:?}");
        assert!((random - kind.random_share()).abs() < 0.012, "{shape:?}: {random}");
        let ratio = footprint as f64 / kind.footprint_pages(0.05) as f64;
        assert!((0.75..1.02).contains(&ratio), "{shape:?}: footprint {ratio}");
    }
}

#[test]
fn the_spc_traces_are_of_storage_units_with_addresses_of_their_own() {
    for (kind, units) in [(Kind::Oltp, 24), (Kind::Websearch, 6)] {
        assert_eq!((kind.units(1.0), kind.units(0.05)), (units, units), "{}", kind.name());
        let unit_pages = kind.footprint_pages(0.05) / units;
        let mut requests = vec![0_u64; units as usize];
        for r in kind.generate(0.05, 1) {
            assert_eq!(r.context, r.device, "a unit is all that the trace knows");
            assert!(
                (r.offset + r.bytes).div_ceil(PAGE_BYTES) <= unit_pages
                    && r.end.unwrap() <= unit_pages * PAGE_BYTES
            );
            requests[r.device as usize] += 1;
        }
        assert!(requests.iter().all(|n| *n > 0), "{requests:?}");
    }
    // Fewer, not smaller than a scan, at a small scale.
    assert_eq!(Kind::Oltp.units(0.002), 4);
}

/// No file has a unit to itself: the ends of several scans are in one.
#[test]
fn scans_of_oltp_share_units() {
    let mut ends: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
    let mut shared = 0;
    for r in Kind::Oltp.generate(1.0, 1).take(20_000) {
        let of_unit = ends.entry(r.device).or_default();
        // A run that was not the last to be asked for in its unit goes on.
        shared += u64::from(of_unit.iter().rev().skip(1).take(8).any(|end| *end == r.offset));
        of_unit.push(r.offset + r.bytes);
    }
    assert!(shared > 1_000, "{shared}");
}

#[test]
fn the_files_of_multi_lie_over_the_whole_drive_and_none_on_another() {
    let mut files = std::collections::BTreeMap::new();
    for r in Kind::Multi.generate(0.05, 1) {
        let of = files.entry(r.context).or_insert((r.offset, r.end.unwrap()));
        *of = (of.0.min(r.offset), r.end.unwrap());
    }
    let extents: Vec<(u64, u64)> = files.into_values().collect();
    assert!(
        extents.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "in order of their numbers, none overlaps"
    );
    assert!(extents[0].0 < DRIVE_BYTES / 100 && extents.last().unwrap().1 > DRIVE_BYTES / 10 * 9);
    assert!(extents.last().unwrap().1 <= DRIVE_BYTES);
}
