//! The place of an address, and when it passes under the heads.
//!
//! A track is one turn of a spiral. The next track begins later by the time of a seek to it (the skew), so a
//! long read goes on without losing a turn. Each address has a number of turns from the beginning of the
//! spiral. The time between two addresses in a long read is the difference of their turns, and the angle of
//! an address is the fraction of its turns. All of it is closed formulas, without a table.

use crate::platter::DataSheet;

#[derive(Clone, Debug)]
pub(crate) struct Spiral {
    sectors: f64,
    outer: f64,
    inner: f64,
    /// Tracks over the whole stroke.
    pub(crate) tracks: f64,
    /// Skew between tracks, turns.
    skew: f64,
    /// Nanoseconds of a turn.
    pub(crate) turn: f64,
    track_ms: f64,
    average_ms: f64,
    full_ms: f64,
}

impl Spiral {
    pub(crate) fn new(sheet: &DataSheet) -> Spiral {
        let turn_s = 60.0 / sheet.rpm;
        let skew = sheet.track_ms / 1e3 / turn_s;
        let mean = f64::midpoint(sheet.outer_mb_per_s, sheet.inner_mb_per_s) * 1e6;
        let bytes = sheet.sectors as f64 * seekless_base::SECTOR_BYTES as f64;
        Spiral {
            sectors: sheet.sectors as f64,
            outer: sheet.outer_mb_per_s,
            inner: sheet.inner_mb_per_s,
            // At this number a track and the skew to the next one pass at the sustained rate.
            tracks: bytes / (mean * turn_s * (1.0 + skew)),
            skew,
            turn: turn_s * 1e9,
            track_ms: sheet.track_ms,
            average_ms: sheet.average_ms,
            full_ms: sheet.full_ms,
        }
    }

    /// Tracks from the outside to an address; the fraction is the part of its own track before it.
    pub(crate) fn track(&self, sector: u64) -> f64 {
        let part = (sector as f64 / self.sectors).min(1.0);
        let (o, i) = (self.outer, self.inner);
        let across = match o - i < 1e-9 {
            true => part,
            false => (o - libm::sqrt(o * o - (o - i) * (o + i) * part)) / (o - i),
        };
        across * self.tracks
    }

    /// Turns from the beginning of the spiral to an address.
    pub(crate) fn turns(&self, sector: u64) -> f64 {
        let track = self.track(sector);
        track + libm::floor(track) * self.skew
    }

    /// The last address that a read which passed `from` has passed `ns` later.
    pub(crate) fn after(&self, from: u64, ns: f64) -> u64 {
        let turns = self.turns(from) + ns.max(0.0) / self.turn;
        let whole = libm::floor(turns / (1.0 + self.skew));
        let track = whole + (turns - whole * (1.0 + self.skew)).min(1.0);
        let across = (track / self.tracks).min(1.0);
        let (o, i) = (self.outer, self.inner);
        let part = across * (o - (o - i) * across / 2.0) / f64::midpoint(o, i);
        ((part * self.sectors) as u64).max(from)
    }

    /// Nanoseconds from `from` to `to` in a long read.
    pub(crate) fn pass(&self, from: u64, to: u64) -> f64 {
        (self.turns(to) - self.turns(from)) * self.turn
    }

    /// Nanoseconds from `now` until an address comes round.
    pub(crate) fn wait(&self, now: f64, sector: u64) -> f64 {
        let ahead = self.turns(sector) - now / self.turn;
        (ahead - libm::floor(ahead)) * self.turn
    }

    /// Nanoseconds to move the heads over this many tracks and settle.
    pub(crate) fn seek(&self, tracks: f64) -> f64 {
        if tracks < 1.0 {
            return 0.0;
        }
        let stroke = (tracks / self.tracks).min(1.0);
        let third = 1.0 / 3.0;
        let ms = if stroke <= third {
            self.track_ms + (self.average_ms - self.track_ms) * libm::sqrt(stroke / third)
        } else {
            self.average_ms + (self.full_ms - self.average_ms) * (stroke - third) / (1.0 - third)
        };
        ms * 1e6
    }
}
