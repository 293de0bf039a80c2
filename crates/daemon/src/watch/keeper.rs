//! The thread that releases readers blocked for too long, checks ignored files, ends pauses, and sends beats
//! to the supervisor as long as every event thread is alive.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use seekless_engine::lock;

use super::beats::{Beats, ROUND};
use super::events::Announcer;
use super::files::{IGNORED_FOR, LOOK_EVERY};

pub(crate) struct Keeper {
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) beats: Arc<Beats>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) heart: Option<UnixStream>,
}

impl Keeper {
    pub(crate) fn run(mut self) {
        // If a beat is late on a busy machine, the worker is killed.
        seekless_engine::run_first();
        let announcer = self.announcer.clone();
        let (files, folders, group, counts) =
            (&announcer.files, &announcer.folders, &announcer.group, &announcer.counts);
        let mut look_at = Instant::now() + LOOK_EVERY;
        let mut refresh_at = Instant::now() + IGNORED_FOR;
        while !self.stop.load(Ordering::Acquire) {
            let now = Instant::now();
            announcer.registry.enforce(now);
            announcer.pauses.round(now, |dev| folders.resume(dev, group));
            if self.beats.all_alive(now)
                && let Some(heart) = &mut self.heart
            {
                // A full socket means that the supervisor is stopped; it finds enough beats when it goes on.
                let _ = heart.write(b".");
            }
            if now >= refresh_at {
                files.refresh(folders, group);
                refresh_at = now + IGNORED_FOR;
            } else if now >= look_at {
                look_at = now
                    + files.look(folders, group, counts, |file| {
                        lock(announcer.engine.devices()).needs_every_hit(file)
                    });
            }
            thread::sleep(ROUND);
        }
    }
}
