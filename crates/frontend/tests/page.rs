//! The page of the metrics address in a real browser.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekless_engine::DiskReport;
use seekless_frontend::metrics::{Address, MetricsServer, Observation};
use seekless_testing::browser::{chromium, dom};

/// Long enough for several looks of the page, which come every two seconds.
const PAGE_TIME: Duration = Duration::from_secs(15);

const MIB: u64 = 1 << 20;

/// A disk that reads 8 MiB, and is busy for half of the time, between two looks.
fn disk(looks: u64) -> DiskReport {
    DiskReport {
        // A name that would be an element of the page if it were not taken as text.
        name: "sda<img src=x>".into(),
        streams_now: 3,
        bytes_read: looks * 8 * MIB,
        disk_ms: looks as f64 * 1000.0,
        media_rate: 100e6,
        budget_bytes: 64 * MIB,
        ..Default::default()
    }
}

fn page(answers: impl Fn(u64) -> Option<Observation> + Send + Sync + 'static) -> Option<String> {
    let Some(browser) = chromium() else {
        println!("skipped: chromium");
        return None;
    };
    let looks = AtomicU64::new(0);
    let source = move || answers(looks.fetch_add(1, Ordering::Relaxed));
    let server = MetricsServer::start(Address(([127, 0, 0, 1], 0).into()), Arc::new(source)).unwrap();
    Some(dom(&browser, &format!("http://{}/", server.address()), PAGE_TIME))
}

fn observed(looks: u64) -> Observation {
    Observation {
        door: "daemon",
        version: "1.2.3".into(),
        uptime: Duration::from_secs(10 + 2 * looks),
        disks: vec![disk(looks)],
        ..Default::default()
    }
}

#[test]
fn the_page_draws_what_every_disk_does() {
    let Some(page) = page(|looks| Some(observed(looks))) else { return };
    for text in [
        "daemon 1.2.3, up ",
        "serving, 1 disk(s)",
        "<h2>sda&lt;img src=x&gt;</h2>",
        "<span>streams </span><b>3</b>",
        "<span>budget </span><b>64.0 MiB</b>",
        // 8 MiB in two seconds, half of them busy; of those the transfer at 100 MB/s.
        "Read, MB/s: now 4.2, most 4.2",
        "Busy: now 50 %",
        "transferring 4 %",
        "positioning 46 %",
        "idle 50 %",
    ] {
        assert!(page.contains(text), "no `{text}` in {page}");
    }
    assert_eq!(page.matches("<svg ").count(), 4, "four plots: {page}");
    let lines: Vec<&str> = page.split(" d=\"").skip(1).filter_map(|path| path.split('"').next()).collect();
    assert!(
        lines.len() == 4 && lines.iter().all(|line| line.starts_with('M') && line.contains('L')),
        "{lines:?}"
    );
    assert!(!page.contains("<img"), "a name is no element: {page}");
    assert!(page.contains(r#"<p id="said" role="status"></p>"#), "nothing is wrong: {page}");
}

#[test]
fn the_page_says_when_there_is_no_answer_and_shows_the_last() {
    let Some(page) = page(|looks| (looks < 3).then(|| observed(looks))) else { return };
    assert!(page.contains("No answer (status 503); what is shown is the last state."), "{page}");
    assert!(page.contains("Read, MB/s: now 4.2"), "{page}");
}

#[test]
fn the_page_of_a_daemon_that_was_asked_nothing_says_so() {
    let nothing = |looks| Observation { disks: Vec::new(), passes_all: true, ..observed(looks) };
    let Some(page) = page(move |looks| Some(nothing(looks))) else { return };
    assert!(page.contains("No disk has been read yet."), "{page}");
    assert!(page.contains("every call is passed (seekless prove)"), "{page}");
}
