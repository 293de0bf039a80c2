//! What the daemon said lately: the settings, the devices to leave alone, and when not to bother it at all.
//!
//! Plain atomics, each complete in itself: a reader that sees one of two related numbers old and the other new does
//! something slightly early or late, never something wrong. No lock, so nothing to be left locked by a `fork`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use seekless_wire::{Mode, Settings};

/// After a connection that failed or broke; nor are settings asked for more often, whatever the daemon says.
/// Long enough that a missing daemon costs nothing (one try in 50 ms), short enough that a new one is found
/// while a person still types.
const PAUSE_GONE_MS: u64 = 50;

/// After a wait that ended for lack of patience, a refusal or nonsense; doubled each time up to
/// [`PAUSE_HUNG_MS_MAX`], so that a daemon that hangs costs a thread a tenth of its time at most. A thread that
/// asks for settings keeps others from asking for as long.
const PAUSE_HUNG_MS: u64 = 1_000;
const PAUSE_HUNG_MS_MAX: u64 = 30_000;

/// What is known of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The mode; [`Mode::Both`] when nothing is known: the answer to the first need will say.
    pub(crate) mode: Mode,
    /// How far mode `prefetch` enlarges.
    pub(crate) prefetch_bytes: u64,
    /// Not yet expired.
    pub(crate) fresh: bool,
}

/// All of it; one static instance, and one for each unit test.
pub(crate) struct Memory {
    /// Expiry in milliseconds, shifted left by 8, and the mode's number plus one; 0: nothing known.
    settings: AtomicU64,
    prefetch_bytes: AtomicU64,
    /// Do not connect before.
    pause_until_ms: AtomicU64,
    /// How many pauses in a row follow waits that ended badly.
    hung: AtomicU32,
    /// A thread fetches the settings until then.
    asking_until_ms: AtomicU64,
    /// Device (its number folded to 32 bits) above, expiry in units of 64 ms below.
    devices: [AtomicU64; DEVICES],
}

/// Devices remembered. A server reads from a handful; one too many costs a question more.
const DEVICES: usize = 32;
/// Places a device may be found at.
const PROBES: usize = 4;

pub(crate) static MEMORY: Memory = Memory::new();

impl Memory {
    pub(crate) const fn new() -> Memory {
        Memory {
            settings: AtomicU64::new(0),
            prefetch_bytes: AtomicU64::new(0),
            pause_until_ms: AtomicU64::new(0),
            hung: AtomicU32::new(0),
            asking_until_ms: AtomicU64::new(0),
            devices: [const { AtomicU64::new(0) }; DEVICES],
        }
    }

    /// The settings as last heard.
    pub(crate) fn settings(&self, now_ms: u64) -> Known {
        let word = self.settings.load(Ordering::Relaxed);
        let mode = (word as u8).checked_sub(1).and_then(Mode::from_number);
        match mode {
            Some(mode) => Known {
                mode,
                prefetch_bytes: self.prefetch_bytes.load(Ordering::Relaxed),
                fresh: now_ms < word >> 8,
            },
            None => Known { mode: Mode::Both, prefetch_bytes: 0, fresh: false },
        }
    }

    /// Remembers settings; the daemon is well.
    pub(crate) fn learn(&self, settings: Settings, now_ms: u64) {
        let ttl = u64::from(settings.settings_ttl_ms).max(PAUSE_GONE_MS);
        let word = now_ms.saturating_add(ttl) << 8 | (settings.mode.number() as u64 + 1);
        self.prefetch_bytes.store(settings.prefetch_bytes, Ordering::Relaxed);
        self.settings.store(word, Ordering::Relaxed);
        self.hung.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether to let the daemon be for now.
    pub(crate) fn pausing(&self, now_ms: u64) -> bool {
        now_ms < self.pause_until_ms.load(Ordering::Relaxed)
    }

    /// The daemon is not there, or has gone in the middle: what it said no longer holds.
    pub(crate) fn gone(&self, now_ms: u64) {
        self.settings.store(0, Ordering::Relaxed);
        self.hung.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(now_ms.saturating_add(PAUSE_GONE_MS), Ordering::Relaxed);
    }

    /// The daemon is there and does not answer, or not in our language. Threads that waited at the same time
    /// begin one pause between them.
    pub(crate) fn hung(&self, now_ms: u64) {
        if self.pausing(now_ms) {
            return;
        }
        let times = self.hung.fetch_add(1, Ordering::Relaxed).min(16);
        let pause = (PAUSE_HUNG_MS << times).min(PAUSE_HUNG_MS_MAX);
        self.settings.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(now_ms.saturating_add(pause), Ordering::Relaxed);
    }

    /// The last wait ended badly. Until there is a word from the daemon, only the thread that asks for the
    /// settings waits for one.
    pub(crate) fn in_doubt(&self) -> bool {
        self.hung.load(Ordering::Relaxed) > 0
    }

    /// True for one caller at a time: that one asks for the settings. The right lapses by itself, so a thread or process
    /// that dies with it takes nothing along.
    pub(crate) fn may_ask_settings(&self, now_ms: u64) -> bool {
        let until = self.asking_until_ms.load(Ordering::Relaxed);
        now_ms >= until
            && self
                .asking_until_ms
                .compare_exchange(
                    until,
                    now_ms.saturating_add(PAUSE_HUNG_MS),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Gives the right back. Not after an answer that did not come: then it lapses in its own time.
    pub(crate) fn asked_settings(&self) {
        self.asking_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the daemon asked to leave this device alone.
    pub(crate) fn left_alone(&self, device: u64, now_ms: u64) -> bool {
        let key = fold(device);
        (0..PROBES).any(|i| {
            let word = self.slot(key, i).map_or(0, |s| s.load(Ordering::Relaxed));
            word != 0 && (word >> 32) as u32 == key && now_ms >> 6 < (word & 0xffff_ffff)
        })
    }

    /// Leaves a device alone for `ttl_ms`.
    pub(crate) fn leave_alone(&self, device: u64, ttl_ms: u32, now_ms: u64) {
        let key = fold(device);
        // Expiries count from boot in 64 ms: 32 bits last eight years.
        let until = (now_ms.saturating_add(ttl_ms as u64) >> 6).min(u32::MAX as u64);
        let word = (key as u64) << 32 | until;
        // Its own place, else one that has expired, else the first.
        let usable = |i: &usize| {
            let old = self.slot(key, *i).map_or(0, |s| s.load(Ordering::Relaxed));
            (old >> 32) as u32 == key || (old & 0xffff_ffff) <= now_ms >> 6
        };
        let own = (0..PROBES)
            .find(|i| self.slot(key, *i).is_some_and(|s| (s.load(Ordering::Relaxed) >> 32) as u32 == key));
        let place = own.or_else(|| (0..PROBES).find(usable)).unwrap_or(0);
        if let Some(slot) = self.slot(key, place) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    fn slot(&self, key: u32, probe: usize) -> Option<&AtomicU64> {
        let at = (key.wrapping_mul(0x9e37_79b9) >> 27) as usize;
        self.devices.get((at + probe) % DEVICES)
    }
}

/// A device number in 32 bits: Linux numbers have 12 bits of major and 20 of minor. Never 0.
fn fold(device: u64) -> u32 {
    ((device ^ device >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACK: Settings = Settings { mode: Mode::Track, ring: 0, settings_ttl_ms: 100, prefetch_bytes: 7 };

    #[test]
    fn settings_grow_stale_but_are_kept() {
        let m = Memory::new();
        assert_eq!(m.settings(0), Known { mode: Mode::Both, prefetch_bytes: 0, fresh: false });
        m.learn(TRACK, 1_000);
        assert_eq!(m.settings(1_099), Known { mode: Mode::Track, prefetch_bytes: 7, fresh: true });
        assert_eq!(m.settings(1_100), Known { mode: Mode::Track, prefetch_bytes: 7, fresh: false });
        m.learn(Settings { mode: Mode::Off, settings_ttl_ms: 0, ..TRACK }, 2_000);
        assert!(m.settings(2_000).fresh, "a zero ttl does not make every call ask");
        m.gone(3_000);
        assert!(!m.settings(2_000).fresh && m.settings(2_000).mode == Mode::Both);
    }

    #[test]
    fn pauses_are_short_for_the_gone_and_grow_for_the_hung() {
        let m = Memory::new();
        assert!(!m.pausing(0));
        m.gone(1_000);
        assert!(m.pausing(1_049) && !m.pausing(1_050));
        let (mut now, mut pauses) = (10_000, Vec::new());
        for _ in 0..8 {
            // Two threads have waited.
            m.hung(now);
            m.hung(now);
            assert!(m.in_doubt());
            let end = (now..).find(|t| !m.pausing(*t)).unwrap();
            pauses.push(end - now);
            now = end;
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        m.hung(now);
        m.learn(TRACK, now);
        assert!(!m.pausing(now) && !m.in_doubt(), "a word from the daemon ends the pause");
        m.hung(now);
        assert!(!m.pausing(now + 1_000), "and the count");
        m.gone(now + 1_000);
        assert!(!m.in_doubt(), "one that has gone is not waited for, nor doubted");
    }

    #[test]
    fn one_asks_at_a_time_and_the_right_lapses() {
        let m = Memory::new();
        assert!(m.may_ask_settings(1_000) && !m.may_ask_settings(1_001));
        assert!(!m.may_ask_settings(1_999) && m.may_ask_settings(2_000), "lapsed");
        m.asked_settings();
        assert!(m.may_ask_settings(2_001));
    }

    #[test]
    fn devices_are_left_alone_for_as_long_as_asked() {
        let m = Memory::new();
        assert!(!m.left_alone(0x801, 0));
        m.leave_alone(0x801, 1_000, 10_000);
        assert!(m.left_alone(0x801, 10_500) && !m.left_alone(0x802, 10_500));
        assert!(!m.left_alone(0x801, 11_000));
        // However many there are, nothing breaks and the last is remembered.
        for device in 1..500u64 {
            m.leave_alone(device, 1_000, 10_000);
            assert!(m.left_alone(device, 10_000), "{device}");
        }
        m.leave_alone(499, 5_000, 10_000);
        assert!(m.left_alone(499, 14_000));
    }
}
