use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn start(mib: u64) -> SizeModel {
    let params = Params { start_size: Bytes::mib(mib), size_max: Bytes::mib(256), ..Params::default() };
    SizeModel::new(params)
}

/// Clients that stay, with plenty of memory.
const ROOMY: Situation =
    Situation { room: 512 * MIB, part: 1.0, ended: 0, used: 0.0, left: 0.0, depth: 2 * MIB };

/// The size after the same situation for long enough.
fn settled(model: &mut SizeModel, seen: Situation) -> (u64, Bound) {
    (0..40).for_each(|_| model.situation(seen));
    assert_eq!(model.size(), model.target());
    (model.size().0, model.bound().unwrap())
}

#[test]
fn the_first_situation_sets_the_size_at_once() {
    let mut model = start(3);
    assert_eq!((model.size(), model.bound()), (Bytes::mib(3), None));
    model.situation(ROOMY);
    assert_eq!((model.size(), model.bound()), (Bytes::mib(256), Some(Bound::Longest)));
}

#[test]
fn the_least_bound_decides() {
    let mut model = start(3);
    assert_eq!(settled(&mut model, ROOMY), (256 * MIB, Bound::Longest));
    assert_eq!(settled(&mut model, Situation { room: 5 * MIB, ..ROOMY }), (5 * MIB, Bound::Memory));
    // sqrt(2 MiB * 5 MiB * 40 / 10), at the size in use.
    let leaving = Situation { ended: RECENT, used: 40e6, left: 10e6, ..ROOMY };
    let (size, bound) = settled(&mut model, leaving);
    assert_eq!(bound, Bound::Leaving);
    assert!(size.abs_diff((6.324 * MIB as f64) as u64) < 8192, "{size}");
}

#[test]
fn streams_of_low_bitrates_make_the_full_size_larger() {
    let mut model = start(3);
    let leaving = |part| Situation { part, ended: RECENT, used: 40e6, left: 10e6, ..ROOMY };
    model.situation(ROOMY);
    let whole = {
        let mut model = model.clone();
        settled(&mut model, leaving(1.0)).0
    };
    let half = settled(&mut model, leaving(0.5)).0;
    // Pieces of half of the size were left unread: sqrt(1 / 2) of the bound, for pieces half as long.
    assert!((half as f64 / whole as f64 - libm::sqrt(2.0)).abs() < 0.01, "{half} {whole}");
}

#[test]
fn a_later_change_takes_four_steps_an_octave() {
    let mut model = start(3);
    settled(&mut model, Situation { room: 4 * MIB, ..ROOMY });
    let sizes: Vec<u64> = (0..4)
        .map(|_| {
            model.situation(Situation { room: 8 * MIB, ..ROOMY });
            model.size().0
        })
        .collect();
    assert!(sizes.is_sorted() && sizes[2] < 7 * MIB && sizes[3].abs_diff(8 * MIB) <= PAGE_BYTES, "{sizes:?}");
}

#[test]
fn what_clients_leave_is_believed_once_enough_have_left() {
    let mut model = start(3);
    let left = |ended| Situation { ended, used: 40e6, left: 10e6, ..ROOMY };
    model.situation(left(RECENT - 1));
    assert_eq!(model.bound(), Some(Bound::Longest));
    model.situation(left(RECENT));
    assert_eq!(model.bound(), Some(Bound::Leaving));
    let target = model.target();
    // The same counts again say nothing about the current size.
    model.situation(left(RECENT + 1));
    assert_eq!(model.target(), target);
    let stay = Situation { ended: 2 * RECENT, left: 0.0, ..left(0) };
    assert_eq!(settled(&mut model, stay).1, Bound::Longest);
}

proptest! {
    #[test]
    fn the_size_stays_within_its_bounds_whatever_it_is_told(
        told in prop::collection::vec((any::<u64>(), any::<f64>(), any::<u32>(), any::<f64>(), any::<f64>(), any::<u64>()), 1..50)
    ) {
        let mut model = start(3);
        for (room, part, ended, used, left, depth) in told {
            model.situation(Situation { room, part, ended, used, left, depth });
            let size = model.size();
            prop_assert!((Bytes::kib(512)..=Bytes::mib(256)).contains(&size), "{size}");
            prop_assert_eq!(size.0 % PAGE_BYTES, 0);
        }
    }
}
