//! The result as one self-contained page: no script, no external resources.

use seekless_output::html_escaped;

use super::{AFTER_TRY, Outcome, estimate_text, verdict};

const STYLE: &str = ":root{color-scheme:light dark}body{max-width:54rem;margin:2rem auto;padding:0 1rem;\
    font:16px/1.5 system-ui,sans-serif}table{border-collapse:collapse}td,th{padding:.3rem .8rem;text-align:right;\
    border-bottom:1px solid #8886}th:first-child,td:first-child{text-align:left}.verdict{font-size:1.3rem}\
    .bar{width:20rem}.bar i{display:block;height:.7rem;background:#d55e00}.with .bar i{background:#0072b2}";

/// The page as HTML.
pub(super) fn page(result: &Outcome) -> String {
    let row = |name: &str, without: String, with: String, ratio: String| {
        format!("<tr><td>{name}</td><td>{without}</td><td>{with}</td><td>{ratio}</td></tr>")
    };
    let most = result.blocks.iter().map(|b| b.disk_s_per_gb()).fold(f64::MIN_POSITIVE, f64::max);
    let blocks: Vec<String> = result
        .blocks
        .iter()
        .map(|b| {
            let which = if b.served { "with" } else { "without" };
            let cost = b.disk_s_per_gb();
            format!(
                "<tr class=\"{which}\"><td>{:.1}</td><td>{which}</td><td>{cost:.1}</td>\
                 <td class=\"bar\"><i style=\"width:{:.0}%\"></i></td></tr>",
                b.at / 60.0,
                100.0 * cost / most
            )
        })
        .collect();
    let tried = result.command == "try";
    let (off, on) = (&result.without, &result.with);
    let disks: Vec<String> = result.disks.iter().map(|d| html_escaped(d)).collect();
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>What Seekless gains here</title>\
         <style>{STYLE}</style></head><body><h1>What Seekless gains here</h1><p class=\"verdict\">{}</p>\
         <table><tr><th></th><th>without</th><th>with</th><th>ratio</th></tr>{}{}{}</table>{}\
         <h2>Each block of time</h2><table><tr><th>minute</th><th>Seekless</th><th colspan=\"2\">s of disk time a GB</th></tr>{}</table>\
         <h2>How it was measured</h2><p>The server ran with its own clients. Blocks of time alternated in which Seekless \
         {}, in random order within each pair. The beginning of each block is left out. Disk time is the time in which {} had something to do, as the kernel counts it. The interval is \
         Student&#39;s t on the logarithms of the ratios of {} pairs. The measurement stopped because {}. Seekless {}.</p>\
         </body></html>\n",
        html_escaped(&verdict(result)),
        row(
            "disk time per delivered GB, s",
            format!("{:.2}", off.disk_s_per_gb),
            format!("{:.2}", on.disk_s_per_gb),
            estimate_text(&result.proof.disk_time)
        ),
        row(
            "throughput, MB/s",
            format!("{:.1}", off.mb_per_s),
            format!("{:.1}", on.mb_per_s),
            estimate_text(&result.proof.throughput)
        ),
        // With `observe`, waits are not known.
        if result.proof.p99.is_some() {
            row(
                "p99 wait of a read, ms (median of blocks)",
                format!("{:.0}", off.p99_ms),
                format!("{:.0}", on.p99_ms),
                estimate_text(&result.proof.p99),
            )
        } else {
            String::new()
        },
        if tried { format!("<p>In this measurement {AFTER_TRY}.</p>") } else { String::new() },
        blocks.concat(),
        if tried {
            "read ahead and in which it only counted reads"
        } else {
            "served every read and in which it passed every read"
        },
        disks.join(", "),
        result.proof.disk_time.map_or(0, |e| e.pairs),
        result.stopped.describe(),
        html_escaped(&result.version),
    )
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{Block, proof};
    use super::super::{Kind, Stopped};
    use super::*;

    #[test]
    fn the_page_says_the_verdict_and_needs_nothing_from_elsewhere() {
        let block = |i: u32| Block {
            served: i.is_multiple_of(2),
            at: f64::from(i) * 30.0,
            seconds: 20.0,
            disk_s: if i.is_multiple_of(2) { 10.0 } else { 30.0 + f64::from(i % 3) },
            bytes: 1_000_000_000,
            worked_bytes: 1e9,
            reads: 1000,
            p99_ms: 40.0,
        };
        let blocks: Vec<Block> = (0..12).map(block).collect();
        let result = Outcome {
            version: "0.1.0".into(),
            command: "prove",
            stopped: Stopped::Certain,
            proof: proof(&blocks),
            without: Kind::of(&blocks, false),
            with: Kind::of(&blocks, true),
            disks: vec!["<sda>".into()],
            reports_lost: 0,
            blocks: blocks.clone(),
        };
        let page_of = |result: &Outcome| page(result);
        let observed = Outcome {
            command: "try",
            proof: proof(&blocks.iter().map(|b| Block { p99_ms: 0.0, ..*b }).collect::<Vec<_>>()),
            ..result.clone()
        };
        let observed = page_of(&observed);
        assert!(!observed.contains("p99") && observed.contains("only counted reads"), "{observed}");
        let page = page_of(&result);
        assert!(page.contains("p99") && !page.contains("only counted reads"), "{page}");
        assert!(page.contains("Seekless gains: without it a delivered byte costs 3."), "{page}");
        assert!(page.contains("&lt;sda&gt;") && !page.contains("<sda>"));
        assert!(!page.contains("http") && !page.contains("<script"), "{page}");
        assert_eq!(page.matches("<td>with</td>").count(), 6, "a line for each block");
        assert_eq!(page.matches("width:100%").count(), 2, "the dearest blocks have the longest bars");
    }
}
