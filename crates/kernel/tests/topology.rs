//! Finding the disk, in trees built for the purpose.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use seekless_kernel::topology::{Backing, Dev, MountTable, Topology};
use tempfile::TempDir;

/// A tree in the shape of sysfs.
struct Sys(TempDir);

impl Sys {
    fn new() -> Sys {
        let dir = tempfile::tempdir().unwrap();
        for part in ["dev/block", "class/block", "class/bdi/0:77", "block"] {
            fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        Sys(dir)
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, device: &str, at: &str) {
        symlink(self.root().join("devices").join(device), self.root().join(at)).unwrap();
    }

    /// A whole disk, under `devices/`.
    fn disk(&self, name: &str, dev: &str, rotational: bool) {
        self.put(&format!("devices/{name}/dev"), &format!("{dev}\n"));
        self.put(&format!("devices/{name}/size"), "2000\n");
        self.put(&format!("devices/{name}/queue/rotational"), if rotational { "1\n" } else { "0\n" });
        self.put(&format!("devices/{name}/queue/max_sectors_kb"), "1280\n");
        self.put(&format!("devices/{name}/queue/read_ahead_kb"), "128\n");
        self.put(&format!("devices/{name}/queue/scheduler"), "none [mq-deadline]\n");
        fs::create_dir_all(self.root().join(format!("devices/{name}/slaves"))).unwrap();
        self.register(name, name, dev);
        self.link(name, &format!("block/{name}"));
    }

    fn partition(&self, disk: &str, name: &str, dev: &str, start: u64) {
        self.put(&format!("devices/{disk}/{name}/dev"), &format!("{dev}\n"));
        self.put(&format!("devices/{disk}/{name}/partition"), "1\n");
        self.put(&format!("devices/{disk}/{name}/start"), &format!("{start}\n"));
        self.register(&format!("{disk}/{name}"), name, dev);
    }

    fn register(&self, path: &str, name: &str, dev: &str) {
        self.link(path, &format!("dev/block/{dev}"));
        self.link(path, &format!("class/block/{name}"));
    }

    fn slave(&self, of: &str, path: &str) {
        let name = PathBuf::from(path).file_name().unwrap().to_string_lossy().into_owned();
        self.link(path, &format!("devices/{of}/slaves/{name}"));
    }

    fn backing(&self, mounts: &str, dev: &str, mount_id: Option<u64>) -> Backing {
        let topology = Topology::new(self.root(), MountTable::parse(mounts.as_bytes()));
        topology.backing(Dev::parse(dev).unwrap(), mount_id)
    }
}

/// Name, start, rotational.
fn found(backing: Backing) -> (String, u64, bool) {
    match backing {
        Backing::Disk { disk, start, .. } => (disk.name, start, disk.rotational),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_partition_lies_on_its_disk() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    sys.partition("sda", "sda2", "8:2", 4096);
    assert_eq!(found(sys.backing("", "8:2", None)), ("sda".into(), 4096, true));
    assert_eq!(found(sys.backing("", "8:0", None)), ("sda".into(), 0, true));
}

#[test]
fn logical_volumes_on_one_disk_are_that_disk_and_on_several_a_set() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    sys.partition("sda", "sda1", "8:1", 2048);
    sys.partition("sda", "sda2", "8:2", 9000);
    sys.disk("sdb", "8:16", true);
    sys.disk("dm-0", "252:0", true);
    sys.slave("dm-0", "sda/sda1");
    sys.slave("dm-0", "sda/sda2");
    assert_eq!(found(sys.backing("", "252:0", None)), ("sda".into(), 0, true));
    sys.disk("md0", "9:0", true);
    sys.slave("md0", "sda/sda1");
    sys.slave("md0", "sdb");
    assert_eq!(found(sys.backing("", "9:0", None)), ("md0".into(), 0, true));
    // LVM on the md set: still the set.
    sys.disk("dm-1", "252:1", true);
    sys.slave("dm-1", "md0");
    assert_eq!(found(sys.backing("", "252:1", None)), ("md0".into(), 0, true));
}

#[test]
fn a_loop_is_its_files_disk_unless_the_file_is_on_fuse() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", false);
    sys.disk("loop0", "7:0", true);
    sys.disk("loop1", "7:1", true);
    sys.partition("loop1", "loop1p1", "259:0", 63);
    sys.put("devices/loop0/loop/backing_file", "/images/disk.img\n");
    sys.put("devices/loop1/loop/backing_file", "/soft disk/image\n");
    let mounts =
        "1 0 8:0 / / rw - ext4 /dev/sda rw\n2 1 0:55 / /soft\\040disk rw - fuse.seekless seekless rw\n";
    assert_eq!(found(sys.backing(mounts, "7:0", None)), ("sda".into(), 0, false));
    assert_eq!(found(sys.backing(mounts, "259:0", None)), ("loop1".into(), 63, true));
}

#[test]
fn anonymous_devices_go_by_the_mount_table() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    sys.partition("sda", "sda1", "8:1", 2048);
    let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                  7 1 0:40 / /data rw - btrfs /dev/sda1 rw\n\
                  8 1 0:41 / /tmp rw - tmpfs tmpfs rw\n\
                  9 1 0:42 / /net rw - nfs4 server:/export rw\n\
                  10 1 0:43 / /sshfs rw - fuse.sshfs me@host: rw\n\
                  11 1 0:44 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/var/up,workdir=/var/w\n\
                  12 1 0:45 / /ntfs rw - fuseblk /dev/sda1 rw\n";
    // The st_dev of a btrfs subvolume is in no mount table; its mount's number is.
    assert_eq!(found(sys.backing(mounts, "0:99", Some(7))), ("sda".into(), 2048, true));
    assert_eq!(sys.backing(mounts, "0:41", None), Backing::Memory);
    let Backing::Beyond(why) = sys.backing(mounts, "0:42", None) else { panic!() };
    assert!(why.contains("nfs4") && why.contains("another machine"), "{why}");
    assert_eq!(found(sys.backing(mounts, "0:43", None)), ("/sshfs".into(), 0, true));
    assert_eq!(found(sys.backing(mounts, "0:44", None)), ("sda".into(), 2048, true));
    assert_eq!(found(sys.backing(mounts, "0:45", None)), ("sda".into(), 2048, true));
    assert!(matches!(sys.backing(mounts, "0:1234", None), Backing::Unresolved(_)));
}

#[test]
fn btrfs_on_several_disks_is_a_set_of_its_own() {
    let sys = Sys::new();
    for (name, dev) in [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32")] {
        sys.disk(name, dev, name == "sdb");
    }
    sys.partition("sdc", "sdc1", "8:33", 2048);
    sys.partition("sdc", "sdc2", "8:34", 9000);
    let uuid = |uuid: &str, devices: &[&str]| {
        for device in devices {
            let name = device.rsplit('/').next().unwrap();
            fs::create_dir_all(sys.root().join(format!("fs/btrfs/{uuid}/devices"))).unwrap();
            sys.link(device, &format!("fs/btrfs/{uuid}/devices/{name}"));
        }
    };
    sys.put("fs/btrfs/features/raid1c34", "0\n");
    uuid("1-2", &["sda", "sdb"]);
    uuid("3-4", &["sdc/sdc1", "sdc/sdc2"]);
    let mounts = "7 1 0:40 / /data rw - btrfs /dev/sda rw\n8 1 0:50 /sub /more rw - btrfs /dev/sdc2 rw\n";
    let Backing::Disk { disk, start, queue_of, members } = sys.backing(mounts, "0:99", Some(7)) else {
        panic!()
    };
    assert_eq!((disk.name.as_str(), disk.rotational, start), ("btrfs:sda+sdb", true, 0));
    assert_eq!(
        disk.dev,
        Dev { major: 0, minor: 40 },
        "the file system's own number, whatever the subvolume's"
    );
    assert_eq!(queue_of, Some(Dev { major: 8, minor: 0 }));
    assert_eq!(members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["sda", "sdb"]);
    // Two partitions of one disk are that disk.
    assert_eq!(found(sys.backing(mounts, "0:98", Some(8))), ("sdc".into(), 9000, false));
}

#[test]
fn what_read_ahead_cannot_help_is_said() {
    let sys = Sys::new();
    for (kind, source) in [("zfs", "tank/media"), ("nfs", "a:/b"), ("cifs", "//a/b"), ("ceph", "1.2.3.4:/")] {
        let mounts = format!("5 1 0:60 / /m rw - {kind} {source} rw\n");
        let Backing::Beyond(why) = sys.backing(&mounts, "0:60", Some(5)) else { panic!("{kind}") };
        assert!(why.starts_with(kind), "{why}");
    }
}

/// Every user may mount FUSE and choose any source and subtype. For each of these only the mount itself is a
/// disk, and nothing that they name is opened: the FIFOs would block for ever.
#[test]
fn what_a_user_wrote_into_the_mount_table_is_neither_a_disk_nor_a_path() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    let home = tempfile::tempdir().unwrap();
    let trap = home.path().join("trap");
    fs::create_dir(&trap).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, trap.join("dev"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink(sys.root().join("class/block/sda"), home.path().join("link")).unwrap();
    let trap = trap.display();
    let link = home.path().join("link").display().to_string();
    let up = format!("{}{trap}", "../".repeat(12));
    let sources =
        ["/dev/sda", "sda", &format!("/dev/{trap}"), &format!("/dev/{up}"), &format!("/dev/{link}")];
    let kinds =
        ["fuse", "fuse.mergerfs", "fuse.btrfs", "fuse.ext4", "virtiofs", "nosuchfs", "overlay", "btrfs"];
    let (tell, told) = std::sync::mpsc::channel();
    let asked: Vec<(String, String)> = kinds
        .iter()
        .flat_map(|kind| sources.iter().map(move |source| (kind.to_string(), source.to_string())))
        .collect();
    let count = asked.len();
    std::thread::spawn(move || {
        for (kind, source) in asked {
            let mounts = format!("5 1 0:60 / /m rw - {kind} {source} rw,user_id=1000,group_id=1000\n");
            let found = sys.backing(&mounts, "0:60", Some(5));
            let topology = Topology::new(sys.root(), MountTable::parse(mounts.as_bytes()));
            let layered = topology.is_layered(Some(5));
            if tell.send((kind, source, found, layered)).is_err() {
                return;
            }
        }
    });
    for _ in 0..count {
        let (kind, source, found, layered) = told
            .recv_timeout(std::time::Duration::from_secs(10))
            .expect("a path of the mount table was opened");
        match kind.as_str() {
            "btrfs" if source == "/dev/sda" => assert_eq!(self::found(found).0, "sda"),
            kind if kind.starts_with("fuse") || kind == "virtiofs" => {
                assert_eq!(self::found(found), ("/m".into(), 0, true), "{kind} {source}");
                assert!(!layered, "{kind}: any user may say so");
            }
            kind => assert!(matches!(found, Backing::Unresolved(_)), "{kind} {source}: {found:?}"),
        }
    }
}

/// Device names as reported by btrfs are found without access to `/dev`.
#[test]
fn mapped_and_linked_names_of_devices_are_found_in_records() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    sys.disk("dm-0", "252:0", true);
    sys.put("devices/dm-0/dm/name", "vg--0-media\n");
    sys.disk("md127", "9:127", false);
    sys.disk("cciss!c0d0", "104:0", true);
    let udev = tempfile::tempdir().unwrap();
    fs::write(udev.path().join("b9:127"), "S:md/films\nS:disk/by-id/md-uuid-1\nE:A=B\n").unwrap();
    let disk = |source: &str| {
        let mounts = format!("5 1 0:60 / /m rw - btrfs {source} rw\n");
        let topology = Topology::new(sys.root(), MountTable::parse(mounts.as_bytes())).with_udev(udev.path());
        match topology.backing(Dev { major: 0, minor: 60 }, Some(5)) {
            Backing::Disk { disk, .. } => Some(disk.name),
            _ => None,
        }
    };
    for source in ["/dev/mapper/vg--0-media", "/dev/vg-0/media", "/dev/dm-0"] {
        assert_eq!(disk(source).as_deref(), Some("dm-0"), "{source}");
    }
    for source in ["/dev/md/films", "/dev/disk/by-id/md-uuid-1"] {
        assert_eq!(disk(source).as_deref(), Some("md127"), "{source}");
    }
    assert_eq!(disk("/dev/cciss/c0d0").as_deref(), Some("cciss!c0d0"));
    for source in
        ["/dev/mapper/other", "/dev/A=B", "/dev/../dev/sda", "/dev/./sda", "/dev//sda", "/dev/", "sda"]
    {
        assert_eq!(disk(source), None, "{source}");
    }
}

#[test]
fn a_pool_counts_where_root_has_mounted_it() {
    let mounts = |user: u32| {
        let line = format!("5 1 0:60 / /m rw - fuse.mergerfs a:b rw,user_id={user},group_id=0,allow_other\n");
        Topology::new("/nowhere", MountTable::parse(line.as_bytes())).is_layered(Some(5))
    };
    assert!(mounts(0) && !mounts(1000) && !mounts(65534));
}

#[test]
fn a_mount_points_name_is_no_path_below_sysfs() {
    use seekless_kernel::identity::Identity;
    use seekless_kernel::queue::{Queue, Setting};
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("queue")).unwrap();
    fs::write(home.path().join("queue/scheduler"), "[none]\n").unwrap();
    fs::write(home.path().join("serial"), "stolen\n").unwrap();
    let name = home.path().to_str().unwrap();
    assert_eq!(Queue::new(Path::new("/sys/block"), name).get(&Setting::Scheduler), None);
    assert_eq!(Identity::of(Path::new("/sys/block"), Path::new("/run/udev/data"), name).source, "name");
    // A name with terminal control characters is shown escaped.
    let mounts = MountTable::parse(b"5 1 0:60 / /m\\033[2J\\012x rw - fuse x rw,user_id=1000\n");
    let topology = Topology::new("/nowhere", mounts);
    let Backing::Disk { disk, .. } = topology.backing(Dev { major: 0, minor: 60 }, Some(5)) else { panic!() };
    assert_eq!(disk.name, "/m\\x1b[2J\\nx");
}

#[test]
fn rings_of_devices_end() {
    let sys = Sys::new();
    sys.disk("dm-0", "252:0", true);
    sys.disk("dm-1", "252:1", true);
    sys.slave("dm-0", "dm-1");
    sys.slave("dm-1", "dm-0");
    found(sys.backing("", "252:0", None));
    let mounts =
        "3 0 0:9 / /o rw - overlay overlay rw,upperdir=/p/u\n4 0 0:8 / /p rw - overlay x rw,upperdir=/o/u\n";
    assert!(matches!(sys.backing(mounts, "0:9", None), Backing::Unresolved(_)));
}

#[test]
fn limits_are_read() {
    let sys = Sys::new();
    sys.disk("sda", "8:0", true);
    sys.put("class/bdi/0:77/read_ahead_kb", "4096\n");
    let topology = Topology::new(sys.root(), MountTable::default());
    let limits = |dev: &str| topology.queue_limits(Dev::parse(dev).unwrap());
    assert_eq!(limits("8:0").read_ahead_cut(), 1280 << 10);
    assert_eq!(limits("0:77").read_ahead_cut(), 4096 << 10);
    assert_eq!(limits("0:78").read_ahead_cut(), 128 << 10, "the kernel's default where nothing is known");
}

#[test]
fn this_machine_has_an_answer_for_its_own_files() {
    use std::os::unix::fs::MetadataExt;
    let exe = std::env::current_exe().unwrap();
    let dev = Dev::from_raw(fs::metadata(exe).unwrap().dev());
    // Whatever it is, the lookup must not panic; the result depends on the machine.
    println!("{:?}", Topology::of_system().backing(dev, None));
}
