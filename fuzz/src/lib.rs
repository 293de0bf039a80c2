//! What each fuzz target checks: a function of bytes that panics where a promise is broken.
//!
//! Here and not in the targets, so that the seeds are run through the same checks by the ordinary tests.

pub mod block_map;
pub mod conditional;
pub mod get;
pub mod multipart_read;
pub mod multipart_write;
pub mod path;
pub mod range;
pub mod reorder;
pub mod serve;
pub mod trace;
pub mod wire;

/// Makes writing to a closed socket an error, as the start of every Rust program does: libFuzzer's own start does not, and
/// the signal would end it.
fn survive_closed_sockets() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let handled = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::pipe());
    assert!(handled.is_ok(), "no handler for SIGPIPE");
}

/// Runs one target by its name; whether there is one of that name.
pub fn run(target: &str, data: &[u8]) -> bool {
    let run = match target {
        "block_map" => block_map::run,
        "conditional" => conditional::run,
        "get" => get::run,
        "multipart_read" => multipart_read::run,
        "multipart_write" => multipart_write::run,
        "path" => path::run,
        "range" => range::run,
        "reorder" => reorder::run,
        "serve" => serve::run,
        "trace" => trace::run,
        "wire" => wire::run,
        _ => return false,
    };
    run(data);
    true
}
