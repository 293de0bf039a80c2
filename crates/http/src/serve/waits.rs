//! How many reads of clients wait for a disk. Reads that no client waits for give way to them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use seekless_engine::lock;

/// Reads of clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: usize,
    last_ended: Option<Instant>,
}

/// A read that counts as waiting until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Waits);

impl Waits {
    /// A read of a client begins to wait.
    pub(crate) fn begin(&self) -> Waiting<'_> {
        lock(&self.0).now += 1;
        Waiting(self)
    }

    /// How long no read has waited; `None`: one waits.
    pub(crate) fn quiet_for(&self) -> Option<Duration> {
        let state = lock(&self.0);
        (state.now == 0).then(|| state.last_ended.map_or(Duration::MAX, |at| at.elapsed()))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.now -= 1;
        state.last_ended = Some(Instant::now());
    }
}
