//! An origin below caches that fetch slices: what the disk reads, with coordination and without (scenario `pfc-live`).
//!
//! The clients are the closed readers of the live scenario, seed for seed, each at the same rate: their links decide it. The edge
//! holds slices in least-recently-used order. The origin holds 64 KiB blocks in the same order, is asked for a slice on every miss of
//! the edge, and reads ahead of each run in pieces. Only what is read is modelled, not when: waiting is left to live runs.

use seekless_levels::cache::{Cache, Origin, Replacement};
use seekless_levels::coordinate::lingering::Lingering;
use seekless_levels::coordinate::returns::{Returns, ReturnsParams};
use seekless_units::{Bytes, Exit, Fault, Nanos};
use seekless_workload::catalogue::Catalogue;
use seekless_workload::closed::{ClosedReader, ClosedSpec};

/// Unit of the origin's cache.
const BLOCK: u64 = 64 << 10;

/// Two levels.
#[derive(Clone, Debug)]
pub struct Edges {
    /// What clients ask the edge for.
    pub spec: ClosedSpec,
    /// Clients.
    pub clients: u32,
    /// The edge's cache.
    pub edge: Bytes,
    /// What the edge asks the origin for at a time.
    pub slice: Bytes,
    /// The origin's memory for file pages.
    pub memory: Bytes,
    /// How far the origin reads on.
    pub prefetch: Bytes,
    /// Only what comes back stays at the origin ([`Returns`]).
    pub coordinated: bool,
    /// Requests of each client before counting, and counted.
    pub warmup: u64,
    /// See `warmup`.
    pub counted: u64,
}

/// What came out, as parts of the bytes the clients received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficShares {
    /// Asked for by the edge.
    pub asked: f64,
    /// Read from the disk.
    pub disk: f64,
}

struct Lower<'a> {
    plan: &'a Edges,
    held: Cache,
    returns: Option<Returns>,
    lingering: Lingering<(u64, u64)>,
    read: u64,
}

impl Lower<'_> {
    /// Asks for `[offset, end)` of a file that has `size` bytes.
    fn slice(&mut self, file: u64, offset: u64, end: u64, size: u64) {
        let block = |at: u64| (file << 32) + at / BLOCK;
        let mut at = offset;
        while at < end {
            match self.held.find(block(at)) {
                Some(slot) => drop(self.held.hit(slot)),
                None => {
                    // A piece as long as the prefetch size, up to what is there already.
                    let to = (at + self.plan.prefetch.0.max(BLOCK)).min(size);
                    let mut next = at;
                    while next < to && !self.held.contains(block(next)) {
                        let origin = if next < end { Origin::Sequential } else { Origin::Prefetch };
                        self.held.insert(block(next), origin, 0);
                        self.read += BLOCK.min(size - next);
                        next += BLOCK;
                    }
                }
            }
            at += BLOCK;
        }
        let Some(returns) = &mut self.returns else { return };
        let units = returns.units_of(file, offset, end - offset);
        // Every unit is to hear of it, so not `all`.
        let passed = units.filter(|&(unit, from, len)| !returns.requested(unit, from, len, size)).count();
        let kept = passed == 0;
        if kept {
            return;
        }
        self.lingering.sent((file, offset), end - offset, Nanos(0));
        while let Some(((file, offset), len)) = self.lingering.leaves(returns.room(), Nanos::MAX) {
            // Given back: the first to leave.
            for at in (offset..offset + len).step_by(BLOCK as usize) {
                if let Some(slot) = self.held.find((file << 32) + at / BLOCK) {
                    self.held.demote(slot);
                }
            }
        }
    }
}

/// Runs one setting.
///
/// # Errors
/// A cache of no or of absurd size.
pub fn run(catalogue: &Catalogue, plan: &Edges) -> Result<TrafficShares, Fault> {
    let cache = |bytes: Bytes, unit: u64| {
        Cache::new(Replacement::Lru, (bytes.0 / unit).max(1))
            .map_err(|bad| Fault::new(Exit::Usage, format!("a cache of {bytes}: {bad}")))
    };
    let slice = plan.slice.0.max(BLOCK) / BLOCK * BLOCK;
    let mut edge = cache(plan.edge, slice)?;
    let returns = plan.coordinated.then(|| Returns::new(ReturnsParams::default(), plan.memory.0));
    let mut lower =
        Lower { plan, held: cache(plan.memory, BLOCK)?, returns, lingering: Lingering::default(), read: 0 };
    let mut readers: Vec<ClosedReader<'_>> =
        (0..plan.clients).map(|n| ClosedReader::new(catalogue, &plan.spec, n)).collect();
    let (mut received, mut asked) = (0, 0);
    for round in 0..plan.warmup + plan.counted {
        if round == plan.warmup {
            (received, asked, lower.read) = (0, 0, 0);
        }
        for request in readers.iter_mut().filter_map(Iterator::next) {
            let size = catalogue.video(request.video).size.0;
            received += request.len;
            let end = request.offset + request.len;
            let mut at = request.offset / slice * slice;
            while at < end {
                let name = (u64::from(request.video) << 32) + at / slice;
                match edge.find(name) {
                    Some(slot) => drop(edge.hit(slot)),
                    None => {
                        let to = (at + slice).min(size);
                        asked += to - at;
                        lower.slice(request.video.into(), at, to, size);
                        edge.insert(name, Origin::Random, 0);
                    }
                }
                at += slice;
            }
        }
    }
    let over = |bytes: u64| bytes as f64 / received.max(1) as f64;
    Ok(TrafficShares { asked: over(asked), disk: over(lower.read) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_workload::catalogue::CatalogueSpec;
    use seekless_workload::closed::Pick;

    /// A quarter of the live scenario.
    #[test]
    fn coordination_never_reads_more_and_mostly_less() {
        let spec = CatalogueSpec { size: Some(Bytes::mib(384)), zipf: 1.0, ..CatalogueSpec::default() };
        let catalogue = Catalogue::new(&spec).unwrap();
        for pick in [Pick::Uniform, Pick::Zipf] {
            for edge in [16, 128] {
                let mut plan = Edges {
                    spec: ClosedSpec { pick, ..ClosedSpec::default() },
                    clients: 6,
                    edge: Bytes::mib(edge),
                    slice: Bytes::mib(1),
                    memory: Bytes::mib(64),
                    prefetch: Bytes::mib(4),
                    coordinated: false,
                    warmup: 1000,
                    counted: 2000,
                };
                let without = run(&catalogue, &plan).unwrap();
                plan.coordinated = true;
                let with = run(&catalogue, &plan).unwrap();
                assert_eq!(with.asked, without.asked, "the edge does not know");
                assert!(with.disk < without.disk, "{pick:?} {edge}: {with:?} {without:?}");
            }
        }
    }
}
