//! Keeps the machine's processors from sleeping while milliseconds are measured.
//!
//! A processor with nothing to do sleeps, and the deeper the later it hears that a read is done. That is no constant which
//! the overhead of a command would contain: it sleeps deeper in the long waits between seeks than in the short ones of that
//! measurement. Where the kernel chooses how deep, it is asked not to (`/dev/cpu_dma_latency`, for which one has to be
//! root). In a virtual machine it does not choose: there a thread for each processor keeps it busy at the lowest
//! priority there is.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use seekless_kernel::sched::{processors, run_last_on};

const LATENCY: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Threads at the most: a virtual machine with more processors has some that do something.
const THREADS_MAX: usize = 16;

/// Processors are awake while this lives, as far as the system allows.
pub(crate) struct Awake {
    _latency: Option<File>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Wakes them.
    pub(crate) fn new() -> Awake {
        let stop = Arc::new(AtomicBool::new(false));
        let chosen = std::fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() != "none");
        let on = if chosen { Vec::new() } else { processors(THREADS_MAX) };
        let threads = on.into_iter().filter_map(|processor| {
            let stop = Arc::clone(&stop);
            let busy = move || {
                // At any other priority it would take from those of the same group that have work.
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

/// The longest that any processor may take to wake, in microseconds, while the file is open: none.
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
        // A thread holds the flag as long as it runs.
        let stop = Arc::downgrade(&awake.stop);
        drop(awake);
        assert_eq!(stop.strong_count(), 0);
    }
}
