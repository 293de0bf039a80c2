//! `seekless-lab vdisk stats`, `fault` and `trace`: talking to a running disk.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::drive::set::SpindleStats;
use serde_json::json;

use super::DiskArgs;
use crate::config::DiskConfig;
use crate::control::{ControlClient, ControlReply, ControlRequest, StatsReport};
use crate::faults::{ByteRange, MemberHealth, MemberOrders, MemberState, Slow, SlowMember};
use crate::state::DiskDir;

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Reset the counts after showing them
    #[arg(long)]
    reset: bool,
}

fn ask(name: &str, ask: &ControlRequest) -> Result<ControlReply, Fault> {
    ControlClient::connect(&DiskDir::new(name)?)?.ask(ask)
}

fn unexpected(name: &str) -> Fault {
    Fault::failed(format!("disk `{name}` is of another version of this program: take it down and up again"))
}

pub(super) fn stats(args: &StatsArgs) -> Result<Exit, Fault> {
    let ControlReply::Stats(report) = ask(&args.disk.name, &ControlRequest::Stats { reset: args.reset })?
    else {
        return Err(unexpected(&args.disk.name));
    };
    let mut value = serde_json::to_value(&report).unwrap_or_default();
    value["name"] = args.disk.name.as_str().into();
    args.disk.json.show(&value, || table(&args.disk.name, &report))?;
    Ok(Exit::Ok)
}

fn table(name: &str, report: &StatsReport) -> String {
    let (s, d) = (&report.stats, &report.derived);
    let share = |ns: u64| 100.0 * ns as f64 / s.elapsed_ns.max(1) as f64;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut text = format!(
        "{name}: {:.1} MB read in {} commands, {:.1} MB written in {}; {:.1} MB/s over {:.1} s of drive time\n",
        s.read_bytes as f64 / 1e6,
        s.reads,
        s.write_bytes as f64 / 1e6,
        s.writes,
        d.mb_per_s,
        seconds(s.elapsed_ns)
    );
    text += &format!(
        "  time    busy {:.1} %: seek {:.1} %, rotation {:.1} %, transfer {:.1} %, overhead {:.1} %, look-ahead {:.1} %; idle {:.1} %\n",
        share(s.busy_ns),
        share(s.seek_ns),
        share(s.rotation_ns),
        share(s.transfer_ns),
        share(s.overhead_ns),
        share(s.busy_ns.saturating_sub(s.service_ns)),
        share(s.idle_ns)
    );
    text += &format!(
        "  command {:.0} KiB, service {:.2} ms (seek {:.2}, rotation {:.2}, transfer {:.2}), response {:.2} ms (most {:.1})\n",
        d.command_bytes / 1024.0,
        d.service_ms,
        d.seek_ms,
        d.rotation_ms,
        d.transfer_ms,
        d.response_ms,
        s.response_max_ns as f64 / 1e6
    );
    text += &format!(
        "  seeks   {} ({:.0} KiB between them), {} head movements, {} served from the track buffer\n",
        s.seeks,
        d.bytes_per_seek / 1024.0,
        s.head_moves,
        s.buffer_hits
    );
    for m in &report.members {
        let sum = |of: fn(&SpindleStats) -> u64| m.spindles.iter().map(of).sum::<u64>() as f64;
        let busy = 100.0 * sum(|s| s.busy_ns) / (s.elapsed_ns.max(1) as f64 * m.spindles.len().max(1) as f64);
        text += &format!(
            "  member  {}: {:.1} MB read, {:.1} MB written, busy {busy:.1} %{}\n",
            m.state.member,
            sum(|s| s.read_bytes) / 1e6,
            sum(|s| s.write_bytes) / 1e6,
            member_text(&m.state)
        );
    }
    text + &format!(
        "  queue   {:.1} on average, {} at most; {} failed by a fault\n",
        d.queue_mean, s.queue_max, s.errors
    )
}

/// What is wrong with a member, to follow a line about it.
fn member_text(state: &MemberState) -> String {
    let mut text = match state.health {
        MemberHealth::Whole => String::new(),
        MemberHealth::Failed => ", failed".into(),
        MemberHealth::Rebuilding => format!(", rebuilding ({:.1} % done)", 100.0 * state.rebuilt),
    };
    if state.slow > 1.0 {
        text += &format!(", {} times as slow", state.slow);
    }
    text
}

#[derive(Debug, Args)]
pub(super) struct FaultArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Fail requests that touch this range, with EIO
    #[arg(long, value_name = "OFFSET+LEN")]
    eio: Vec<ByteRange>,
    /// Answer nothing for this time, such as 5s or 200ms (real time, whatever the speed)
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    hang: Option<u64>,
    /// Serve requests (in the range) FACTOR times as slowly
    #[arg(long, value_name = "FACTOR[,OFFSET+LEN]")]
    slow: Vec<Slow>,
    /// Serve everything of this member FACTOR times as slowly; members are numbered from 0
    #[arg(long, value_name = "MEMBER,FACTOR")]
    slow_member: Vec<SlowMember>,
    /// Fail this member: its data comes from its mirror or from the other members, or is lost
    #[arg(long, value_name = "MEMBER")]
    fail_member: Vec<u32>,
    /// Replace this member by an empty drive and write it again from the others
    #[arg(long, value_name = "MEMBER")]
    rebuild_member: Vec<u32>,
    /// Remove all earlier faults first
    #[arg(long)]
    clear: bool,
}

/// Milliseconds, an hour at most.
fn parse_ms(text: &str) -> Result<u64, String> {
    let time = text.parse::<Nanos>().map_err(|e| e.to_string())?;
    if time <= Nanos::from_secs(3600) {
        Ok(time.0.div_ceil(1_000_000))
    } else {
        Err("write an hour at most".into())
    }
}

/// Whether the disk has what the faults are to act on.
fn meets(args: &FaultArgs, disk: &DiskConfig) -> Result<(), String> {
    let ranges = args.eio.iter().copied().chain(args.slow.iter().filter_map(|slow| slow.range));
    for ByteRange { offset, len } in ranges {
        if offset.saturating_add(len) > disk.size.0 {
            let (from, size) = (Bytes(offset), disk.size);
            return Err(format!("{from}+{} lies beyond its end: it has {size}", Bytes(len)));
        }
    }
    let members = args.slow_member.iter().map(|slow| slow.member);
    let members = members.chain(args.fail_member.iter().chain(&args.rebuild_member).copied());
    match members.max() {
        Some(member) if member >= disk.set.members => {
            let last = disk.set.members - 1;
            Err(format!("there is no member {member}: they are numbered 0 to {last}"))
        }
        _ => Ok(()),
    }
}

pub(super) fn fault(args: &FaultArgs) -> Result<Exit, Fault> {
    let hang_ms = args.hang.unwrap_or(0);
    let members = MemberOrders {
        slow: args.slow_member.clone(),
        fail: args.fail_member.clone(),
        rebuild: args.rebuild_member.clone(),
    };
    let dir = DiskDir::new(&args.disk.name)?;
    if let Some(record) = dir.record() {
        meets(args, &record.config)
            .map_err(|why| Fault::usage(format!("disk `{}`: {why}", args.disk.name)))?;
    }
    let order = ControlRequest::Fault {
        eio: args.eio.clone(),
        slow: args.slow.clone(),
        hang_ms,
        members,
        clear: args.clear,
    };
    let ControlReply::Faults(faults) = ask(&args.disk.name, &order)? else {
        return Err(unexpected(&args.disk.name));
    };
    let value = json!({ "name": args.disk.name, "hang_ms": hang_ms, "faults": faults });
    args.disk.json.show(&value, || {
        let mut text = String::new();
        if hang_ms > 0 {
            text += &format!("{}: hangs for {hang_ms} ms\n", args.disk.name);
        }
        for r in &faults.eio {
            text += &format!("{}: EIO at {}+{}\n", args.disk.name, r.offset, r.len);
        }
        for s in &faults.slow {
            let place = s.range.map_or("everywhere".into(), |r| format!("at {}+{}", r.offset, r.len));
            text += &format!("{}: {} times as slow {place}\n", args.disk.name, s.factor);
        }
        for m in &faults.members {
            text += &format!("{}: member {}{}\n", args.disk.name, m.member, member_text(m));
        }
        if text.is_empty() { format!("{}: no faults\n", args.disk.name) } else { text }
    })?;
    Ok(Exit::Ok)
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["to", "off"]))]
pub(super) struct TraceArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Start a trace into this new file
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// End the trace
    #[arg(long)]
    off: bool,
}

pub(super) fn trace(args: &TraceArgs) -> Result<Exit, Fault> {
    let path = args.to.as_deref().map(|p| std::path::absolute(p).unwrap_or_else(|_| p.to_path_buf()));
    ask(&args.disk.name, &ControlRequest::Trace { path: path.clone() })?;
    let value = json!({ "name": args.disk.name, "trace": path });
    args.disk.json.show(&value, || match &path {
        Some(path) => format!("{}: every command is traced to {}\n", args.disk.name, path.display()),
        None => format!("{}: no trace\n", args.disk.name),
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::parse_ms;

    #[test]
    fn a_hang_is_milliseconds_and_an_hour_at_most() {
        assert_eq!((parse_ms("5s"), parse_ms("200ms"), parse_ms("0.25s")), (Ok(5000), Ok(200), Ok(250)));
        for text in ["s", "-1s", "2h", "3601s", "nans"] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
    }
}
