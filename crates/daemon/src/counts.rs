//! Counters of a door, which several threads count.

use std::sync::Mutex;

use seekless_engine::lock;

/// A door's report so far. What is not counted is filled in when the report is made.
pub(crate) struct Counts<R>(Mutex<R>);

impl<R: Clone> Counts<R> {
    pub(crate) fn new(from: R) -> Counts<R> {
        Counts(Mutex::new(from))
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut R)) {
        add(&mut lock(&self.0));
    }

    pub(crate) fn report(&self) -> R {
        lock(&self.0).clone()
    }
}
