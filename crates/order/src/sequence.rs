//! The order of a list, pure: batches of bounded size, each sorted by the place of its files.

/// The place of a file, as far as is known.
///
/// The order of the fields is the order of the list: disk after disk; on a disk first files without an
/// address, by inode (their bytes, if any, lie in the inode, or their file system reports none), then by
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Index of the disk, chosen by the caller.
    pub disk: usize,
    /// On the disk.
    pub at: At,
}

/// The place on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// By inode number, because there is no address.
    Inode(u64),
    /// Address of the first bytes.
    Address(u64),
}

/// Sorts by place. Stable: items at the same place stay in the order of the list.
pub fn sort<T>(items: &mut [T], place: impl Fn(&T) -> Place) {
    items.sort_by_key(place);
}

/// Bounds of a batch. It ends with the item that reaches one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most items.
    pub items: usize,
    /// Bytes of the paths.
    pub bytes: usize,
}

/// Takes the next batch. Empty: the list has ended.
pub fn batch<T>(items: &mut impl Iterator<Item = T>, limits: Limits, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut taken = Vec::new();
    let mut sum = 0usize;
    while taken.len() < limits.items.max(1) && sum < limits.bytes.max(1) {
        let Some(item) = items.next() else { break };
        sum = sum.saturating_add(bytes(&item));
        taken.push(item);
    }
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = Place> {
        // Few values, so that equal places are met.
        let at = prop_oneof![(0..20u64).prop_map(At::Inode), (0..20u64).prop_map(At::Address)];
        (0..3usize, at).prop_map(|(disk, at)| Place { disk, at })
    }

    proptest! {
        #[test]
        fn a_sorted_list_is_a_stable_permutation_that_rises(places in prop::collection::vec(place(), 0..300)) {
            let mut items: Vec<(usize, Place)> = places.iter().copied().enumerate().collect();
            sort(&mut items, |item| item.1);
            for pair in items.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].1);
                prop_assert!(pair[0].1 != pair[1].1 || pair[0].0 < pair[1].0, "stable");
            }
            let mut back = items.clone();
            back.sort_by_key(|item| item.0);
            prop_assert_eq!(back.into_iter().map(|item| item.1).collect::<Vec<_>>(), places);
        }

        #[test]
        fn a_disk_is_done_before_the_next_and_addresses_rise_on_it(
            places in prop::collection::vec(place(), 1..300)
        ) {
            let mut items = places;
            sort(&mut items, |place| *place);
            let mut disks: Vec<usize> = items.iter().map(|place| place.disk).collect();
            disks.dedup();
            let mut once = disks.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(disks, once, "no disk is come back to");
            for pair in items.windows(2).filter(|pair| pair[0].disk == pair[1].disk) {
                match (pair[0].at, pair[1].at) {
                    (At::Inode(a), At::Inode(b)) | (At::Address(a), At::Address(b)) => prop_assert!(a <= b),
                    (first, then) => prop_assert!(
                        matches!((first, then), (At::Inode(_), At::Address(_))), "{:?} {:?}", first, then
                    ),
                }
            }
        }

        #[test]
        fn batches_are_bounded_and_lose_nothing(
            sizes in prop::collection::vec(0..50usize, 0..400), items in 1..40usize, bytes in 1..300usize
        ) {
            let limits = Limits { items, bytes };
            let mut list = sizes.iter().copied();
            let mut all = Vec::new();
            loop {
                let taken = batch(&mut list, limits, |size| *size);
                if taken.is_empty() {
                    break;
                }
                prop_assert!(taken.len() <= items);
                let before_last: usize = taken[..taken.len() - 1].iter().sum();
                prop_assert!(before_last < bytes, "only the last item may reach the bound");
                all.extend(taken);
            }
            prop_assert_eq!(all, sizes);
        }
    }

    #[test]
    fn bounds_of_nothing_still_go_on() {
        let mut list = [7usize, 8].into_iter();
        let none = Limits { items: 0, bytes: 0 };
        assert_eq!(batch(&mut list, none, |size| *size), [7]);
        assert_eq!(batch(&mut list, none, |size| *size), [8]);
        assert_eq!(batch(&mut list, none, |size| *size), [0usize; 0]);
    }
}
