//! Counters of the server, for its report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};

/// A call that sends from memory and takes longer than this has most likely waited for a disk, or for the
/// processor.
pub(crate) const SLOW_CALL: Duration = Duration::from_millis(5);

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the start, by all event loops.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $($(#[$doc])* pub(crate) $name: AtomicU64,)* }

        impl Counters {
            /// All counters as JSON.
            pub(crate) fn json(&self) -> Value {
                let mut all = Map::new();
                $(all.insert(stringify!($name).into(), self.$name.load(Ordering::Relaxed).into());)*
                Value::Object(all)
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections refused at a bound.
    connections_refused,
    /// Connections cut off at the end because their answers took longer than the grace period.
    connections_cut,
    /// TLS handshakes that failed.
    handshakes_failed,
    /// Requests answered.
    requests,
    /// Bytes of bodies handed to the kernel (HTTP/2: to the framing).
    body_bytes,
    /// Of these, by sendfile.
    sendfile_bytes,
    /// Ranges of files sent at once because they were in memory.
    hits,
    /// Ranges requested from the engine.
    engine_requests,
    /// Of these, brought into memory.
    engine_resident,
    /// Ranges that the engine did not serve or passed, read by a helper thread.
    helper_reads,
    /// Lookups that had to read a directory.
    helper_opens,
    /// Calls of event loops that read or sent from memory.
    loop_calls,
    /// Of these, slower than 5 ms.
    loop_calls_slow,
    /// The slowest, microseconds.
    loop_call_max_us,
    /// Answers broken off because the file changed, the disk failed, or the client did not take them.
    answers_broken,
    /// Log lines lost because the log could not be written, or not fast enough.
    log_lines_lost,
    /// Downloads answered in any order.
    any_order,
    /// Their blocks sent.
    any_order_blocks_sent,
    /// Their blocks read from disk.
    any_order_blocks_read,
    /// Digests computed.
    digests_made,
    /// Digests given up because no client waited for them any more.
    digests_given_up,
    /// Answers sent without the requested digest, because too many clients waited or the file is too large.
    digests_refused,
    /// Bytes kept out of the page cache by coordination.
    bypassed_bytes,
    /// Bytes read further by coordination.
    readmore_bytes,
}

impl Counters {
    /// Counts one.
    pub(crate) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts several.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Records the time of a call of an event loop.
    pub(crate) fn call(&self, took: Duration) {
        Counters::one(&self.loop_calls);
        if took >= SLOW_CALL {
            Counters::one(&self.loop_calls_slow);
        }
        self.loop_call_max_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
    }
}
