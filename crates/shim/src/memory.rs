//! The daemon's latest settings, the devices to leave alone, and pauses in which the daemon is not asked at
//! all.
//!
//! All state consists of plain atomics, each complete in itself. A reader that sees an old value of one and a
//! new value of another acts slightly early or late, never wrongly. There is no lock, so a `fork` cannot
//! leave one locked.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use seekless_wire::{Mode, Settings};

/// Pause after a connection that failed or broke, in milliseconds. Settings are not requested more often than
/// that either, whatever their validity. Long enough that a missing daemon costs nothing (one attempt in 50
/// ms), short enough that a new one is found while a person still types.
const PAUSE_GONE_MS: u64 = 50;

/// Pause after a wait that ended by timeout, a refusal or an invalid frame, in milliseconds. It is doubled
/// each time up to [`PAUSE_HUNG_MS_MAX`], so that a hung daemon costs a thread a tenth of its time at most. A
/// thread that asks for settings prevents others from asking for the same time.
const PAUSE_HUNG_MS: u64 = 1_000;
const PAUSE_HUNG_MS_MAX: u64 = 30_000;

/// The known settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The mode; [`Mode::Both`] if nothing is known, because the answer to the first need brings it.
    pub(crate) mode: Mode,
    /// Enlarged length of a read in mode `prefetch`.
    pub(crate) prefetch_bytes: u64,
    /// Whether the calling thread reads that range itself.
    pub(crate) reads: bool,
    /// Whether they have not expired.
    pub(crate) fresh: bool,
}

impl Known {
    pub(crate) const fn of(settings: Settings, fresh: bool) -> Known {
        let (prefetch_bytes, reads) = (settings.enlarged_bytes(), settings.shim_reads());
        Known { mode: settings.mode, prefetch_bytes, reads, fresh }
    }
}

/// All state; one static instance, and one for each unit test.
pub(crate) struct Memory {
    /// Expiry in milliseconds, shifted left by 8, and the mode's number plus one; 0 if nothing is known.
    settings: AtomicU64,
    prefetch_bytes: AtomicU64,
    /// No connection is made before this time.
    pause_until_ms: AtomicU64,
    /// Number of consecutive pauses after failed waits.
    hung: AtomicU32,
    /// Until then a thread is asking for the settings.
    asking_until_ms: AtomicU64,
    /// Device (its number folded to 32 bits) in the upper half, expiry in units of 64 ms in the lower.
    devices: [AtomicU64; DEVICES],
}

/// Maximum number of remembered devices. A server reads from a handful; a device too many costs one more
/// request.
const DEVICES: usize = 32;
/// Number of slots in which a device may be found.
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

    /// The last known settings.
    pub(crate) fn settings(&self, now_ms: u64) -> Known {
        let word = self.settings.load(Ordering::Relaxed);
        let mode = (word as u8).checked_sub(1).and_then(Mode::from_number);
        match mode {
            Some(mode) => {
                let prefetch_bytes = self.prefetch_bytes.load(Ordering::Relaxed);
                let settings = Settings { mode, ring: 0, settings_ttl_ms: 0, prefetch_bytes };
                Known::of(settings, now_ms < word >> 8)
            }
            None => Known { mode: Mode::Both, prefetch_bytes: 0, reads: false, fresh: false },
        }
    }

    /// Stores settings; the daemon works.
    pub(crate) fn learn(&self, settings: Settings, now_ms: u64) {
        let ttl = u64::from(settings.settings_ttl_ms).max(PAUSE_GONE_MS);
        let word = now_ms.saturating_add(ttl) << 8 | (settings.mode.number() as u64 + 1);
        self.prefetch_bytes.store(settings.prefetch_bytes, Ordering::Relaxed);
        self.settings.store(word, Ordering::Relaxed);
        self.hung.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the daemon must not be asked now.
    pub(crate) fn pausing(&self, now_ms: u64) -> bool {
        now_ms < self.pause_until_ms.load(Ordering::Relaxed)
    }

    /// The daemon is missing, or closed the connection: its settings no longer hold.
    pub(crate) fn gone(&self, now_ms: u64) {
        self.settings.store(0, Ordering::Relaxed);
        self.hung.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(now_ms.saturating_add(PAUSE_GONE_MS), Ordering::Relaxed);
    }

    /// The daemon is there and does not answer, or not with valid frames. Threads that waited at the same
    /// time begin one pause together.
    pub(crate) fn hung(&self, now_ms: u64) {
        if self.pausing(now_ms) {
            return;
        }
        let times = self.hung.fetch_add(1, Ordering::Relaxed).min(16);
        let pause = (PAUSE_HUNG_MS << times).min(PAUSE_HUNG_MS_MAX);
        self.settings.store(0, Ordering::Relaxed);
        self.pause_until_ms.store(now_ms.saturating_add(pause), Ordering::Relaxed);
    }

    /// Whether the last wait failed. Until the daemon sends a frame, only the thread that asks for the
    /// settings waits for it.
    pub(crate) fn in_doubt(&self) -> bool {
        self.hung.load(Ordering::Relaxed) > 0
    }

    /// Claims the right to ask for the settings; `true` for one caller at a time. The right expires by
    /// itself, so a thread or process that dies with it blocks no other.
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

    /// Gives the right back. Not after a missing answer: then it expires by itself.
    pub(crate) fn asked_settings(&self) {
        self.asking_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the daemon asked to leave this device alone, and that has not expired.
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
        // Expiries count from boot in units of 64 ms: 32 bits last eight years.
        let until = (now_ms.saturating_add(ttl_ms as u64) >> 6).min(u32::MAX as u64);
        let word = (key as u64) << 32 | until;
        // Its own slot, else an expired one, else the first.
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

/// A device number in 32 bits (Linux has 12 bits of major and 20 of minor). Never 0.
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
        assert_eq!(m.settings(0), Known { mode: Mode::Both, prefetch_bytes: 0, reads: false, fresh: false });
        m.learn(TRACK, 1_000);
        assert_eq!(
            m.settings(1_099),
            Known { mode: Mode::Track, prefetch_bytes: 7, reads: false, fresh: true }
        );
        assert_eq!(
            m.settings(1_100),
            Known { mode: Mode::Track, prefetch_bytes: 7, reads: false, fresh: false }
        );
        m.learn(Settings { mode: Mode::Off, settings_ttl_ms: 0, ..TRACK }, 2_000);
        assert!(m.settings(2_000).fresh, "a zero ttl does not make every call ask");
        m.learn(TRACK.by_reads(true), 2_500);
        assert_eq!(
            m.settings(2_500),
            Known { reads: true, prefetch_bytes: 7, mode: Mode::Track, fresh: true }
        );
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
        // With any number of devices nothing breaks, and the last one is remembered.
        for device in 1..500u64 {
            m.leave_alone(device, 1_000, 10_000);
            assert!(m.left_alone(device, 10_000), "{device}");
        }
        m.leave_alone(499, 5_000, 10_000);
        assert!(m.left_alone(499, 14_000));
    }
}
