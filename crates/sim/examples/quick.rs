use seekless_sim::twolevel::*;
use seekless_workload::generate::Kind;
use seekless_policy::{cache::Replacement, coordinate::*, prefetch::*};
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let scale: f64 = a.get(1).map_or(0.1, |s| s.parse().unwrap());
    let drive = (a.get(2).map(|s| s.as_str()) != Some("none")).then(|| seekless_drive::catalogue::get("cheetah-9lp").unwrap());
    let algs_all = [("amp", Replacement::Lru, Algorithm::Amp(Default::default())), ("sarc", Replacement::Sarc, Algorithm::Sarc(sarc::SarcParams{degree: std::env::var("SP").map_or(24,|s|s.parse().unwrap()), trigger_distance: std::env::var("SG").map_or(8,|s|s.parse().unwrap())})),
      ("ra", Replacement::Lru, Algorithm::Ra(Default::default())), ("linux", Replacement::Lru, Algorithm::Linux(Default::default()))];
    let mut stats = std::collections::BTreeMap::new(); let only = a.get(3).cloned().unwrap_or_default(); let algs: Vec<_> = algs_all.into_iter().filter(|x| std::env::var("ALG").map_or(true,|s| s.contains(x.0))).collect(); for kind in Kind::ALL { if !only.is_empty() && kind.name()!=only {continue}
        let reqs: Vec<BlockRequest> = kind.generate(scale, 1).map(|r| BlockRequest { at: r.at.unwrap_or_default(), context: r.context, first: r.offset/4096, last: (r.offset+r.bytes)/4096-1, limit: r.end.unwrap()/4096-1 }).collect();
        let blocks: u64 = reqs.iter().map(|r| r.last-r.first+1).sum();
        for (size, share) in [("H", 0.05), ("L", 0.01)] { for ratio in [2.0, 1.0, 0.1, 0.05] { for (name, rep, alg) in algs.iter().copied() {
            let l1 = ((kind.footprint_pages(scale) as f64*share) as u64).max(1);
            let mut line = format!("{:9} {size} {:4}% {name:5} ", kind.name(), ratio*100.0);
            let mut base = 0.0;
            for (cn, c) in [("none", Coordination::None), ("du", Coordination::Du), ("pfc", Coordination::Pfc(Default::default())), ("1.5", Coordination::Pfc(pfc::PfcParams{large_request: pfc::LargeRequest::OneAndHalf, ..Default::default()})), ("fifo", Coordination::Pfc(pfc::PfcParams{refresh_on_hit:false, ..Default::default()}))] {
                let level = |cap, coord| LevelSpec { replacement: rep, prefetch: alg, coordination: coord, capacity_blocks: cap };
                let spec = SystemSpec { levels: vec![level(l1, Coordination::None), level(((l1 as f64*ratio) as u64).max(1), c)], network: Network::PFC, drive: drive.clone(), block_bytes: 4096,
                    timing: if kind.timed() { Timing::Trace { stretch: 1.0 } } else { Timing::Closed { clients: 1 } } };
                let t = Instant::now();
                let mut e = Engine::new(&spec).unwrap();
                for r in &reqs { e.request(r); }
                let o = e.finish();
                let _el=t; let _ = blocks;
                let e = stats.entry(cn).or_insert((0u32,0u32,0.0f64)); e.0 += 1; let g=(base-o.response_mean_ns)/base*100.0; if cn != "none" { e.2 += g; e.1 += (g>0.0) as u32; }
 if cn == "none" { base = o.response_mean_ns; }
                line += &format!("| {cn} {:6.2}ms {:+5.1}% h{:.2} dr{:6} u{:.2}", o.response_mean_ns/1e6, (base-o.response_mean_ns)/base*100.0, o.levels[1].hit_ratio(), o.disk.requests, o.disk.busy.as_secs_f64()/o.end.as_secs_f64());
            }
            println!("{line}");
        }}}
    }
    for (c,(n,w,g)) in stats { println!("{c}: {w}/{n} wins mean {:.2}", g/n as f64); }
}
