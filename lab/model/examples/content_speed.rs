//! How fast content is made, verified and recognised, on one core: `cargo run --release --example
//! content_speed`.

use std::hint::black_box;
use std::time::Instant;

use seekless_model::workload::content::{Content, recognise_page};

fn main() {
    let content = Content::of_path("videos/000001.mp4");
    // One megabyte: what a disk command or a client's buffer holds, in the second-level cache.
    let mut buf = vec![0u8; 1 << 20];
    let rounds = 2_000u64;
    let rate = |name: &str, start: Instant| {
        let bytes = rounds as f64 * (1 << 20) as f64;
        println!("{name:10} {:6.2} GB/s", bytes / start.elapsed().as_secs_f64() / 1e9);
    };
    let start = Instant::now();
    for i in 0..rounds {
        content.fill(black_box(i << 20), &mut buf);
    }
    rate("fill", start);
    content.fill(0, &mut buf);
    let start = Instant::now();
    for _ in 0..rounds {
        assert!(content.check(0, black_box(&buf)).is_ok());
    }
    rate("check", start);
    let (pages, _) = buf.as_chunks::<4096>();
    let start = Instant::now();
    for _ in 0..rounds {
        for page in pages {
            assert!(recognise_page(black_box(page)).is_some());
        }
    }
    rate("recognise", start);
}
