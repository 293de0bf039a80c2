//! Replays a log as it was: the same events into a new engine must give the same actions.

use std::collections::BTreeMap;

use seekless_base::Fault;
use seekless_policy::DiskEngine;
use seekless_policy::decisions::Entry;

use super::Log;

/// One disk of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Number of events.
    pub events: u64,
    /// Number of actions that are the same as in the log.
    pub actions: u64,
    /// The first difference.
    pub differs: Option<String>,
}

/// Replays a whole log.
///
/// # Errors
/// It cannot be read; a disk acts before its settings are known.
pub fn run(log: &mut Log) -> Result<Vec<Disk>, Fault> {
    let mut disks: BTreeMap<u32, (DiskEngine, Disk)> = BTreeMap::new();
    while let Some(line) = log.next_line()? {
        if let Entry::Disk { name, config } = line.entry {
            let disk = Disk { name, ..Disk::default() };
            disks.insert(line.disk, (DiskEngine::new(*config), disk));
            continue;
        }
        let Some((engine, disk)) = disks.get_mut(&line.disk) else {
            let what = format!("disk {} does something before its settings are told", line.disk);
            return Err(Fault::failed(format!("{}: line {}: {what}", log.path, log.number)));
        };
        if disk.differs.is_some() {
            continue;
        }
        match line.entry {
            Entry::Event(event) => {
                engine.handle(line.at, event);
                disk.events += 1;
            }
            Entry::Action(then) => match engine.poll_action() {
                Some(now) if now == then => disk.actions += 1,
                now => {
                    let now = now.map_or("nothing".into(), |a| format!("{a:?}"));
                    disk.differs = Some(format!("line {}: then {then:?}, now {now}", log.number));
                }
            },
            Entry::Disk { .. } => {}
        }
    }
    Ok(disks.into_values().map(|(_, disk)| disk).collect())
}
