//! The spindles of a device, where the kernel reports them.
//!
//! | device | source | effect |
//! | --- | --- | --- |
//! | md RAID | `md/level`, `raid_disks`, `chunk_size`; `slaves/` | pieces in flight ([`Config::in_flight`]) |
//! | md linear | the same, and the sizes of its members | a queue a member ([`Config::parts`]) |
//! | a drive of several actuators | `queue/independent_access_ranges/` | a queue an actuator |
//!
//! A mirror adds one piece in flight per copy. A stripe is read by all its members together, so one long
//! piece keeps nearly all of them at work; a few in flight fill the gaps of short pieces, and of the parity.
//! Pieces are not shortened for that: with equal memory one long piece serves more than several short ones
//! (`lab/sim/tests/sets.rs`).
//!
//! LVM, hardware RAID and virtual disks report no layout; there the concurrency limit is measured
//! ([`crate::kind`]). A layout that contradicts itself or its device is ignored: one queue, one warning.

use std::fs;
use std::path::Path;

use seekless_base::Lba;
use seekless_kernel::topology::is_device_name;
use seekless_kernel::topology::parts::{MEMBERS_MAX, actuators, linear, number, text};
use seekless_policy::Config;
use seekless_policy::profile::STRIPED_AT_ONCE;

/// What a device's layout means for its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// For people: `raid1 of 2`.
    pub(crate) name: String,
    /// Pieces in flight.
    pub(crate) in_flight: usize,
    /// Start addresses of the parts with their own heads, except the first.
    pub(crate) parts: Vec<Lba>,
}

impl Layout {
    /// The layout of the block device with this kernel name; `None` if none is reported.
    ///
    /// # Errors
    /// Why the reported layout is inconsistent, in one clause.
    pub(crate) fn read(sys_block: &Path, name: &str) -> Result<Option<Layout>, String> {
        if !is_device_name(name) {
            return Ok(None);
        }
        let dir = sys_block.join(name);
        if !dir.is_dir() {
            return Ok(None);
        }
        if dir.join("md").is_dir() {
            return md(&dir).map(Some);
        }
        let parts: Vec<Lba> = actuators(&dir)?.into_iter().map(Lba).collect();
        let name = format!("{} actuators", parts.len() + 1);
        Ok((!parts.is_empty()).then_some(Layout { name, in_flight: 1, parts }))
    }

    /// Applies the layout to the settings of a disk's queue.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.in_flight = self.in_flight;
        config.parts.clone_from(&self.parts);
    }
}

fn md(dir: &Path) -> Result<Layout, String> {
    let level = text(&dir.join("md/level"))?;
    let members = number(&dir.join("md/raid_disks"))?;
    if !(1..=MEMBERS_MAX).contains(&members) {
        return Err(format!("md/raid_disks says {members}"));
    }
    let there = fs::read_dir(dir.join("slaves")).map_or(0, |all| all.flatten().count() as u64);
    if there == 0 {
        return Err(format!("none of its {members} members is there"));
    }
    let name = format!("{level} of {members}");
    let many =
        |pieces: u64| Layout { name: name.clone(), in_flight: pieces.max(1) as usize, parts: Vec::new() };
    let striped = || match number(&dir.join("md/chunk_size"))? {
        chunk if chunk >= 4096 && chunk.is_multiple_of(512) => Ok(()),
        chunk => Err(format!("{level} with a chunk of {chunk} bytes")),
    };
    match level.as_str() {
        // A missing member delivers nothing; spares are slaves too.
        "raid1" => Ok(many(members.min(there))),
        "raid10" => {
            striped()?;
            // Low byte: near copies; next byte: far copies (md(4)).
            let layout = number(&dir.join("md/layout"))?;
            let copies = (layout & 0xff) * (layout >> 8 & 0xff);
            match copies {
                1..=MEMBERS_MAX if copies <= members => Ok(many(copies.min(there))),
                _ => Err(format!("raid10 of {members} with {copies} copies")),
            }
        }
        "raid0" | "raid4" | "raid5" | "raid6" => {
            striped().map(|()| many(members.min(there).min(STRIPED_AT_ONCE as u64)))
        }
        "linear" => {
            let parts = linear(dir, members)?.into_iter().map(Lba).collect();
            Ok(Layout { name, in_flight: 1, parts })
        }
        other => Err(format!("md/level says {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like `/sys/block` with one device `d` that has these files.
    fn sys(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("d")).unwrap();
        for (name, text) in files {
            let path = dir.path().join("d").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        dir
    }

    fn read(files: &[(&str, &str)]) -> Result<Option<Layout>, String> {
        Layout::read(sys(files).path(), "d")
    }

    fn md_of<'a>(level: &'a str, members: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut files = vec![("md/level", level), ("md/raid_disks", members), ("md/chunk_size", "524288")];
        files.extend([("slaves/a", ""), ("slaves/b", ""), ("slaves/c", ""), ("slaves/e", "")]);
        files.extend_from_slice(more);
        files
    }

    #[test]
    fn a_set_gets_as_many_pieces_as_it_brings_at_once() {
        let pieces = |level, members, more: &[(&'static str, &'static str)]| {
            read(&md_of(level, members, more)).unwrap().unwrap().in_flight
        };
        assert_eq!((pieces("raid0", "2", &[]), pieces("raid0", "4", &[])), (2, 4));
        assert_eq!(pieces("raid1", "4", &[]), 4);
        assert_eq!(pieces("raid1", "2", &[]), 2, "spares bring nothing");
        assert_eq!(pieces("raid1", "6", &[]), 4, "and missing members neither");
        assert_eq!(pieces("raid10", "4", &[("md/layout", "258")]), 2);
        assert_eq!(pieces("raid10", "4", &[("md/layout", "513")]), 2, "far copies");
        assert_eq!((pieces("raid5", "3", &[]), pieces("raid6", "6", &[])), (3, 4));
    }

    #[test]
    fn parts_begin_where_members_and_actuators_do() {
        let sizes = [("md/rd0/size", "1000"), ("md/rd1/size", "500"), ("size", "3000")];
        let linear = read(&md_of("linear", "2", &sizes)).unwrap().unwrap();
        assert_eq!(
            (linear.in_flight, linear.parts, linear.name.as_str()),
            (1, vec![Lba(2000)], "linear of 2")
        );
        let range = "queue/independent_access_ranges";
        let of = |second: &'static str, sectors: &'static str| {
            let (a, b) = (format!("{range}/0/sector"), format!("{range}/0/nr_sectors"));
            let (c, d) = (format!("{range}/1/sector"), format!("{range}/1/nr_sectors"));
            read(&[(&a, "0"), (&b, "1000"), (&c, second), (&d, "1000"), ("size", sectors)])
        };
        assert_eq!(of("1000", "2000").unwrap().unwrap().parts, [Lba(1000)]);
        assert!(of("900", "2000").unwrap_err().contains("does not follow"));
        assert!(of("1000", "2500").unwrap_err().contains("2000 of 2500"));
        let mut config = Config::default();
        of("1000", "2000").unwrap().unwrap().apply(&mut config);
        assert_eq!(config.flights_max(), 2);
    }

    #[test]
    fn a_plain_disk_and_what_is_no_disk_tell_nothing() {
        assert_eq!(read(&[("size", "2000")]), Ok(None));
        assert_eq!(Layout::read(sys(&[]).path(), "/mnt/x"), Ok(None));
        assert_eq!(Layout::read(sys(&[]).path(), "gone"), Ok(None));
    }

    #[test]
    fn a_layout_that_cannot_be_is_not_believed() {
        let wrong = |level, members, more: &[(&'static str, &'static str)]| {
            read(&md_of(level, members, more)).unwrap_err()
        };
        for (level, members, more, said) in [
            ("raid7", "4", ("x", ""), "raid7"),
            ("inactive", "4", ("x", ""), "inactive"),
            ("raid0", "0", ("x", ""), "raid_disks says 0"),
            ("raid0", "100000", ("x", ""), "raid_disks"),
            ("raid0", "many", ("x", ""), "says `many`"),
            ("raid0", "4", ("md/chunk_size", "0"), "chunk of 0"),
            ("raid10", "4", ("md/layout", "0"), "0 copies"),
            ("raid10", "2", ("md/layout", "259"), "3 copies"),
            ("linear", "2", ("md/rd0/size", "1000"), "rd1/size"),
        ] {
            let why = wrong(level, members, &[more]);
            assert!(why.contains(said), "{level} of {members}: {why}");
        }
        let sizes = [("md/rd0/size", "1000"), ("md/rd1/size", "500"), ("size", "9000")];
        assert!(wrong("linear", "2", &sizes).contains("9000"));
        let gone = [("md/level", "raid1"), ("md/raid_disks", "2")];
        assert!(read(&gone).unwrap_err().contains("none of its 2 members"));
    }
}
