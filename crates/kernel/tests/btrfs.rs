//! The addresses that btrfs reports, compared with the content of the devices themselves.

mod made;

use std::os::unix::fs::FileExt;
use std::thread;

use made::{DEVICE_BYTES, FILE_BYTES, PAGE, make};
use seekless_kernel::btrfs::{Profile, Volume};
use seekless_kernel::extents::extents;

#[test]
fn every_byte_lies_where_the_map_says() {
    for (profile, devices, expected) in [
        ("single", 3, (Profile::Single, 1)),
        ("raid0", 3, (Profile::Stripe, 1)),
        ("raid1", 3, (Profile::Mirror, 2)),
        ("raid1c3", 3, (Profile::Mirror, 3)),
        ("raid10", 4, (Profile::StripedMirror, 2)),
        ("raid5", 3, (Profile::Parity(1), 1)),
        ("raid6", 4, (Profile::Parity(2), 1)),
    ] {
        let Some(made) = make(profile, devices) else { return };
        let file = made.file();
        let volume = Volume::read(&file).unwrap();
        assert_eq!(volume.devices.len(), devices);
        assert!(volume.devices.iter().all(|device| device.bytes == DEVICE_BYTES && device.dev.is_some()));
        assert_eq!(volume.chunks.profile(), Some(expected), "{profile}");
        let map = extents(&file, 0).unwrap();
        let mut used = vec![0; devices];
        for page in 0..FILE_BYTES / PAGE {
            let logical = map.address_of((page * PAGE) as u64).unwrap();
            for copy in 0..volume.chunks.at(logical).unwrap().copies() {
                let place = volume.chunks.at(logical).unwrap().place(logical, copy).unwrap();
                let device = made.index(&volume, place.device);
                let mut bytes = [0; PAGE];
                made.images[device].read_exact_at(&mut bytes, place.offset).unwrap();
                let expected = (page as u64 + 1).to_le_bytes().repeat(PAGE / 8);
                assert!(bytes[..] == expected[..], "{profile}: page {page}, copy {copy} on device {device}");
                used[device] += 1;
            }
        }
        let striped = !matches!(profile, "single" | "raid1");
        assert!(!striped || used.iter().all(|&pages| pages > 0), "{profile}: {used:?}");
    }
}

#[test]
fn the_number_of_the_reading_thread_chooses_the_copy() {
    let Some(made) = make("raid1", 2) else { return };
    let file = made.file();
    let volume = Volume::read(&file).unwrap();
    if !volume.thread_chooses {
        println!("skipped: another read policy, or process numbers of a container's own");
        return;
    }
    let logical = extents(&file, 0).unwrap().address_of(0).unwrap();
    let chunk = volume.chunks.at(logical).unwrap();
    for copy in 0..2 {
        let device = made.index(&volume, chunk.place(logical, copy).unwrap().device);
        // Thread ids are assigned in turn.
        let read = || {
            let mine = rustix::thread::gettid().as_raw_nonzero().get() as usize % 2 == copy;
            mine.then(|| {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                let before = made.read_bytes();
                let mut bytes = vec![0; 1 << 20];
                file.read_exact_at(&mut bytes, 0).unwrap();
                made.read_bytes()[device] - before[device]
            })
        };
        let read = (0..64).find_map(|_| thread::scope(|scope| scope.spawn(read).join().unwrap()));
        assert!(read.unwrap() >= 1 << 20, "copy {copy} comes from device {device}");
    }
}
