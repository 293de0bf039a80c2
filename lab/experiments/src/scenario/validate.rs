//! What the types of a scenario cannot say.

use std::collections::HashSet;

use super::{Load, Scenario};
use crate::metric;
use seekless_model::workload::closed::OtherDisks;

impl Scenario {
    /// # Errors
    /// The first thing that does not fit together.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.arms.is_empty() {
            return Err("no [[arm]]: nothing to run".into());
        }
        if !(1..=100).contains(&self.repetitions) {
            return Err(format!("repetitions = {}: 1 to 100", self.repetitions));
        }
        let drawn = self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Machine));
        if drawn {
            self.validate_drawn()?;
        } else {
            self.validate_setting()?;
        }

        let files = matches!(self.load, super::Load::Files { .. });
        if self.arms.iter().any(|a| files != a.reader.is_some()) {
            return Err("`reader` is for arms of a load of kind `files`, and each of those needs it".into());
        }
        if let super::Load::Files { files, median, files_per_pack, pack, ahead, work, .. } = &self.load {
            let sizes = [median, pack, ahead].iter().all(|size| (1..=1 << 30).contains(&size.0));
            if !(1..=1_000_000).contains(files) || *files_per_pack == 0 || !sizes {
                return Err("load: files 1 to 1,000,000, files_per_pack at least 1, sizes 1B to 1GiB".into());
            }
            let times = |w: &super::ProgramWork| w.start_ms >= 0.0 && w.file_us >= 0.0 && w.mb_s > 0.0;
            if !work.as_ref().is_none_or(times) {
                return Err("load.work: start_ms and file_us at least 0, mb_s more".into());
            }
        }
        if let Some(arm) = self.arms.iter().find(|a| a.file_set.is_some()) {
            let by_daemon = arm.file_set == Some(super::FileSetBy::Daemon);
            if !self.load.is_http() || (by_daemon && (arm.mode.is_none() || arm.no_daemon)) {
                return Err(format!(
                    "arm `{}`: `file_set` needs a load of a web server, and `\"daemon\"` a `mode`",
                    arm.name
                ));
            }
        }
        self.validate_writers()?;
        let fio = matches!(self.load, Load::Fio { .. });
        if let Some(arm) = self.arms.iter().find(|a| a.shown && (!fio || a.mode.is_none())) {
            return Err(format!("arm `{}`: `shown` needs a load of kind `fio`, and a `mode`", arm.name));
        }
        let shared = |a: &super::Arm| self.load.is_http() && a.mode.is_some() && !a.no_daemon;
        if let Some(arm) = self.arms.iter().find(|a| a.neighbour.is_some() && !shared(a)) {
            return Err(format!(
                "arm `{}`: `neighbour` needs a load of a web server, and a `mode` with a daemon",
                arm.name
            ));
        }
        if let Some(arm) = self.arms.iter().find(|a| a.proved) {
            let daemon = arm.mode.is_some() && !arm.no_daemon && arm.door != super::Door::Watch;
            if !matches!(self.load, Load::Closed { .. } | Load::Sessions { .. }) || !daemon {
                return Err(format!(
                    "arm `{}`: `proved` needs a load of kind `closed` or `sessions`, and a daemon of the door \"shim\" or \"observe\"",
                    arm.name
                ));
            }
        }
        self.validate_fio()?;
        self.validate_other_disks()?;
        self.validate_broker()?;
        let command = matches!(self.load, super::Load::Command { .. });
        if self.sim.only && self.sim.not.is_some() {
            return Err("sim: `only` and `not` contradict each other".into());
        }
        if command && !self.sim.only {
            return Err("a load of kind `command` runs in the simulator alone: set sim.only".into());
        }
        if self.arms.iter().any(|a| command == a.read.is_empty()) {
            return Err("`read` is for arms of a load of kind `command`, and each of those needs it".into());
        }
        let rows = matches!(&self.load, super::Load::Command { rows: Some(_), .. });
        if let Some(arm) = self.arms.iter().find(|a| !rows && !a.row.is_empty()) {
            return Err(format!("arm `{}`: `row` is for a load of kind `command` with `rows`", arm.name));
        }
        let swept = self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Row));
        if swept && !matches!(&self.load, super::Load::Command { rows: Some(_), x: Some(_), .. }) {
            return Err("axis: the knob `row` needs a load of kind `command` with `rows` and `x`".into());
        }
        for name in self.arms.iter().flat_map(|a| a.read.keys()) {
            metric::find(name)?;
        }
        self.validate_readers()?;
        self.validate_programs()?;
        self.validate_arms()?;
        self.validate_axis()?;
        for name in &self.metrics {
            metric::find(name)?;
        }
        self.validate_operands()?;
        self.validate_statements()?;
        self.validate_quick()
    }

    /// Other disks than the first are told apart in a closed loop only.
    fn validate_other_disks(&self) -> Result<(), String> {
        let apart = |a: &&super::Arm| a.other_disks != OtherDisks::Busy;
        match self.arms.iter().find(apart) {
            Some(arm) if self.disks.len() < 2 || !matches!(self.load, Load::Closed { .. }) => Err(format!(
                "arm `{}`: `other_disks` needs a load of kind `closed` and two [[disk]] or more",
                arm.name
            )),
            _ => Ok(()),
        }
    }

    /// A writer needs a load of a known length, and a rate.
    fn validate_writers(&self) -> Result<(), String> {
        for arm in &self.arms {
            if arm.alone && !(arm.writer.is_some() && matches!(self.load, Load::Closed { .. })) {
                return Err(format!(
                    "arm `{}`: `alone` is for an arm with a writer and a load of kind `closed`",
                    arm.name
                ));
            }
            let Some(writer) = &arm.writer else { continue };
            let long =
                matches!(self.load, Load::Closed { .. } | Load::Handlers { .. } | Load::Sessions { .. });
            if !long || self.disks.is_empty() {
                return Err(format!(
                    "arm `{}`: `writer` needs a [[disk]] and a load of kind `closed`, `handlers` or `sessions`",
                    arm.name
                ));
            }
            let drive = seekless_model::drive::catalogue::find(&self.disks[0].drive);
            if writer.cameras == Some(0) || !(0.1..=3600.0).contains(&writer.segment_s) {
                return Err(format!(
                    "arm `{}`: `writer` has at least one camera, and segments of 0.1 to 3600 seconds",
                    arm.name
                ));
            }
            let links = matches!(self.load, Load::Closed { link: Some(_), .. });
            if writer.missed.is_some() && !(self.sim.only && writer.cameras.is_some() && links) {
                return Err(format!(
                    "arm `{}`: `missed` is of cameras beside clients with a `link`, for the simulator alone",
                    arm.name
                ));
            }
            writer
                .mb_s(&drive.map_err(|e| e.to_string())?)
                .map_err(|e| format!("arm `{}`: {e}", arm.name))?;
        }
        Ok(())
    }

    /// What a paper states needs a paper, and a name of its own: a report counts it once.
    fn validate_statements(&self) -> Result<(), String> {
        let stated = self.checks.iter().any(|c| c.source.is_some()) || !self.undecided.is_empty();
        if stated && self.paper.is_none() {
            return Err("`source` and [[undecided]] are about what a paper states: set `paper`".into());
        }
        let mut names = HashSet::new();
        let all = self.checks.iter().map(|c| &c.name).chain(self.undecided.iter().map(|u| &u.name));
        match all.into_iter().find(|name| !names.insert(name.as_str())) {
            Some(twice) => Err(format!("two checks are called `{twice}`")),
            None => Ok(()),
        }
    }

    /// Memory, disks and library of a machine that is not drawn.
    fn validate_setting(&self) -> Result<(), String> {
        if matches!(self.load, Load::Drawn {}) {
            return Err("a load of kind `drawn` needs an axis with the knob `machine`".into());
        }
        if self.memory.0 == 0 {
            return Err("memory: the limit on the page cache is missing".into());
        }
        if !(1..=16).contains(&self.disks.len()) {
            return Err(format!("{} disks: 1 to 16", self.disks.len()));
        }
        if self.disks.iter().any(|d| !(d.speedup >= 1.0 && d.speedup <= 1000.0)) {
            return Err("speedup: 1 to 1000".into());
        }
        if self.disks.iter().any(|d| d.speedup != self.disks[0].speedup) {
            return Err("speedup: the same on every disk, sessions are sped up by it".into());
        }
        let library = &self.library;
        if !["videos", "clips", "index", "mirror"].contains(&library.content.as_str()) {
            return Err(format!("library.content = `{}`: videos, clips, index or mirror", library.content));
        }
        let given = library.size.is_some() || library.videos.is_some();
        let sized = library.times_memory > 0.0 && library.times_memory <= 1000.0;
        if !given && !sized {
            return Err("library.times_memory: above 0, at most 1000".into());
        }
        if given && library.times_memory != 0.0 {
            return Err("library: give times_memory, or size and videos, not both".into());
        }
        Ok(())
    }

    /// All of this comes from the machines.
    fn validate_drawn(&self) -> Result<(), String> {
        if !matches!(self.load, Load::Drawn {}) || !self.disks.is_empty() || self.memory.0 != 0 {
            return Err(
                "axis: the knob `machine` brings memory, disks and load: write only load.kind = \"drawn\""
                    .into(),
            );
        }
        Ok(())
    }

    /// Arms whose settings or load are found by other runs.
    fn validate_search(&self, arm: &super::Arm) -> Result<(), String> {
        let here = |why: &str| Err(format!("arm `{}`: {why}", arm.name));
        if (arm.best.is_some() || arm.load_of.is_some()) && !self.sim.only && self.memory.0 != 0 {
            return here("best and load_of are for the simulator alone: set sim.only");
        }
        if arm.best.is_some() && arm.load_of.is_some() {
            return here("best and load_of exclude each other");
        }
        if let Some(name) = &arm.load_of
            && !self.arms.iter().any(|a| a.name == *name && a.load_of.is_none())
        {
            return here(&format!("load_of = \"{name}\" names no arm with a load of its own"));
        }
        let Some(best) = &arm.best else { return Ok(()) };
        if best.grid.is_empty() || best.grid.iter().any(|turn| turn.values.is_empty()) {
            return here("best.grid: at least one knob, and a value for each");
        }
        let bound = |knob| {
            matches!(
                knob,
                super::Knob::ReadAhead
                    | super::Knob::MaxSectors
                    | super::Knob::Scheduler
                    | super::Knob::Variant
                    | super::Knob::Prefetch
            )
        };
        if best.grid.iter().any(|turn| !bound(turn.knob)) {
            return here(
                "best.grid: prefetch, read_ahead, max_sectors, scheduler and variant can be searched",
            );
        }
        // Every value must be one that its knob takes, whatever the server.
        for turn in &best.grid {
            for value in &turn.values {
                if let Err(why) = turn.knob.turn(arm.clone(), &mut self.load.clone(), value) {
                    return here(&format!("best.grid: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Services belong to readers, and readers to services.
    fn validate_readers(&self) -> Result<(), String> {
        let swept = self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Service));
        let Load::Readers { clients, rate, .. } = &self.load else {
            return match swept || self.arms.iter().any(|a| a.service.is_some()) {
                true => Err("a service needs a load of kind `readers`".into()),
                false => Ok(()),
            };
        };
        if !(1..=500).contains(clients) || !(64 << 10..=1 << 30).contains(&rate.0) {
            return Err("readers: 1 to 500 clients at 64KiB to 1GiB a second".into());
        }
        if self.disks.len() != 1 || self.sim.not.is_none() {
            return Err("readers: one disk, and `sim.not`".into());
        }
        match self.arms.iter().find(|a| a.service.is_none() && (!swept || a.fixed)) {
            Some(arm) => Err(format!("arm `{}`: no service, and the axis does not sweep services", arm.name)),
            None => Ok(()),
        }
    }

    fn validate_broker(&self) -> Result<(), String> {
        let Load::Broker { clients, backlog, tailing, rate, .. } = &self.load else { return Ok(()) };
        if !(1..=500).contains(clients) || !(1..=500).contains(tailing) || backlog.0 < 16 << 20 {
            return Err("broker: 1 to 500 clients, 1 to 500 tailing, a backlog of at least 16MiB each".into());
        }
        if self.disks.len() != 1 || self.sim.not.is_none() {
            return Err("broker: one disk, and `sim.not`".into());
        }
        let drive =
            seekless_model::drive::catalogue::find(&self.disks[0].drive).map_err(|e| e.to_string())?;
        super::arm::written_mb_s(rate, &drive).map(drop)
    }

    /// Programs are chosen by the axis, by names that are there once.
    fn validate_programs(&self) -> Result<(), String> {
        let swept = self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Program));
        let Load::Programs { program: all } = &self.load else { return Ok(()) };
        if self.disks.len() != 1 || self.sim.not.is_none() || !swept {
            return Err("programs: one disk, `sim.not`, and an axis with the knob `program`".into());
        }
        let mut names = HashSet::new();
        for program in all {
            program.validate()?;
            if !names.insert(&program.name) {
                return Err(format!("two programs are called `{}`", program.name));
            }
        }
        Ok(())
    }

    fn validate_fio(&self) -> Result<(), String> {
        let swept = self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Job));
        let Load::Fio { clients, files, file_size, job, .. } = &self.load else { return Ok(()) };
        if !(1..=500).contains(clients)
            || !(1..=100_000).contains(files)
            || !(64 << 10..=1 << 40).contains(&file_size.0)
        {
            return Err("fio: 1 to 500 clients, 1 to 100,000 files of 64KiB to 1TiB".into());
        }
        if self.disks.len() != 1 || job.is_empty() != swept {
            return Err("fio: one disk, and either `job` or an axis with the knob `job`".into());
        }
        Ok(())
    }

    fn validate_arms(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for arm in &self.arms {
            let here = |why: &str| Err(format!("arm `{}`: {why}", arm.name));
            if !names.insert(&arm.name) {
                return here("the name is used twice");
            }
            let seekless_only = arm.prefetch.is_some()
                || arm.order.is_some()
                || arm.queue.is_some()
                || arm.in_flight.is_some()
                || arm.answer_late
                || arm.single_queue
                || arm.keep_metadata
                || !arm.daemon.is_empty();
            if arm.mode.is_none() && (seekless_only || arm.no_daemon) {
                return here(
                    "prefetch, order, queue, in_flight, answer_late, single_queue, keep_metadata, daemon and no_daemon need a mode",
                );
            }
            if (arm.keep_metadata || !arm.daemon.is_empty())
                && (arm.no_daemon || arm.server == Some(super::ServerKind::Seekless))
            {
                return here("daemon and keep_metadata are for arms with a daemon");
            }
            if !arm.serve.is_empty() && arm.server != Some(super::ServerKind::Seekless) {
                return here("serve is for server = \"seekless\"");
            }
            let speaks_tls =
                matches!(arm.server, Some(super::ServerKind::Nginx | super::ServerKind::Seekless));
            if arm.tls && (!speaks_tls || arm.edge.is_some()) {
                return here("`tls` is for nginx and seekless, without an edge");
            }
            if arm.queue == Some(0) || arm.in_flight == Some(0) {
                return here("queue and in_flight: at least 1");
            }
            if arm.faults.iter().any(|f| {
                !(0.0..=1e6).contains(&f.at_s)
                    || f.for_s.is_some_and(|s| !(0.001..=60.0).contains(&s))
                    || f.every_s.is_some_and(|s| !(1.0..=1e6).contains(&s))
                    || f.limit.is_some_and(|l| l.0 < 16 << 20)
            }) {
                return here(
                    "fault: at_s at least 0, for_s 0.001 to 60, every_s at least 1, limit at least 16MiB",
                );
            }
            if arm.door != super::Door::Shim && (arm.mode.is_none() || arm.no_daemon) {
                return here("door = \"watch\" or \"observe\" needs a mode and a daemon");
            }
            self.validate_search(arm)?;
            let turns = |knob| self.axis.as_ref().is_some_and(|a| a.knobs.contains(&knob));
            let swept = turns(super::Knob::Server) || turns(super::Knob::Machine);
            if self.load.is_http() && arm.server.is_none() && (!swept || arm.fixed) {
                return here("no server, and the axis does not sweep servers");
            }
        }
        Ok(())
    }

    fn validate_axis(&self) -> Result<(), String> {
        let Some(axis) = &self.axis else { return Ok(()) };
        if axis.values.is_empty() || axis.knobs.is_empty() {
            return Err("axis: at least one knob and one value".into());
        }
        for value in axis.values.iter().chain(self.quick.axis_values.iter().flatten()) {
            for knob in &axis.knobs {
                let mut load = self.load.clone();
                axis.turn(*knob, self.arms[0].clone(), &mut load, value)
                    .map_err(|why| format!("axis value {value}: {why}"))?;
            }
        }
        if self.axis.as_ref().is_some_and(|a| a.knobs.contains(&super::Knob::Clients))
            && !matches!(
                self.load,
                Load::Closed { .. } | Load::Handlers { .. } | Load::Downloads { .. } | Load::Diff { .. }
            )
        {
            return Err("axis: this load has no number of clients to sweep".into());
        }
        Ok(())
    }

    /// Checks and published values may only speak of what is run and measured.
    fn validate_operands(&self) -> Result<(), String> {
        let points = self.points();
        let exists = |arm: &str, x: Option<&str>| {
            points.iter().any(|p| p.arm.name == arm && (p.x.is_none() || p.x.as_deref() == x))
        };
        for check in &self.checks {
            check.validate().map_err(|why| format!("check `{}`: {why}", check.name))?;
            for (arm, x) in check.operands() {
                // Without an axis value a check speaks of all of them together.
                let any = x.is_none() && points.iter().any(|p| p.arm.name == arm);
                if !any && !exists(&arm, x.as_deref()) {
                    let at = x.map_or(String::new(), |x| format!(" at {x}"));
                    return Err(format!("check `{}`: no arm `{arm}`{at}", check.name));
                }
            }
        }
        for published in &self.published {
            if !exists(&published.arm, published.x.as_deref()) {
                return Err(format!(
                    "published value for arm `{}`: no such arm or axis value",
                    published.arm
                ));
            }
            if let Some(name) = &published.metric {
                metric::find(name)?;
            }
        }
        Ok(())
    }

    fn validate_quick(&self) -> Result<(), String> {
        let quick = &self.quick;
        if let Some(unknown) =
            quick.arms.iter().flatten().find(|a| self.arms.iter().all(|arm| arm.name != **a))
        {
            return Err(format!("quick: no arm `{unknown}`"));
        }
        if quick.repetitions.is_some_and(|r| !(1..=100).contains(&r)) {
            return Err("quick: repetitions 1 to 100".into());
        }
        if quick.axis_values.is_some() && self.axis.is_none() {
            return Err("quick: axis_values without an axis".into());
        }
        Ok(())
    }
}
