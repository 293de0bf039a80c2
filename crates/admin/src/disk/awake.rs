//! Keeps the machine's processors from sleeping while milliseconds are measured.
//!
//! An idle processor sleeps, and the deeper it sleeps, the later it learns that a read is done. This delay is
//! not constant, so it cannot be part of a command's overhead: the processor sleeps deeper in the long waits
//! between seeks than in the short ones of the overhead measurement. If the kernel chooses the depth, it is
//! asked for none (`/dev/cpu_dma_latency`, root only). In a virtual machine it does not choose; there a
//! thread of the lowest priority keeps each processor busy.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use seekless_kernel::sched::{processors, run_last_on};

const LATENCY: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Maximum number of threads: in a larger virtual machine, some processors have other work.
const THREADS_MAX: usize = 16;

/// Keeps the processors awake while it lives, as far as the system allows.
pub(crate) struct Awake {
    _latency: Option<File>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Wakes the processors.
    pub(crate) fn new() -> Awake {
        let stop = Arc::new(AtomicBool::new(false));
        let chosen = std::fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() != "none");
        let on = if chosen { Vec::new() } else { processors(THREADS_MAX) };
        let threads = on.into_iter().filter_map(|processor| {
            let stop = Arc::clone(&stop);
            let busy = move || {
                // At any other priority it would take time from threads of the same group that have work.
                if run_last_on(processor).is_ok() {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            };
            std::thread::Builder::new().name(format!("awake {processor}")).spawn(busy).ok()
        });
        let threads = threads.collect();
        Awake { _latency: if chosen { hold_latency() } else { None }, stop, threads }
    }
}

/// Maximum wake-up time of a processor in microseconds while the file is open: none.
fn hold_latency() -> Option<File> {
    let mut file = File::options().write(true).open(LATENCY).ok()?;
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_threads_end_with_it() {
        let awake = Awake::new();
        assert!(awake.threads.len() <= THREADS_MAX);
        // Each thread holds the flag as long as it runs.
        let stop = Arc::downgrade(&awake.stop);
        drop(awake);
        assert_eq!(stop.strong_count(), 0);
    }
}
