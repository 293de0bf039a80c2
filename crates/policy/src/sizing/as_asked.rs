use seekless_base::{Bytes, Lba};

use crate::sizing::{Miss, PrefetchSize, SizeReport};

/// No extension: "identical to prefetching with a prefetch size of zero" (\[L\] 3.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsAsked;

impl PrefetchSize for AsAsked {
    fn full(&self, _lba: Option<Lba>, _bitrate: f64) -> Bytes {
        Bytes(0)
    }

    fn on_miss(&mut self, miss: Miss) -> u64 {
        miss.len
    }

    fn report(&self) -> SizeReport {
        SizeReport { kind: "as-asked".into(), ..SizeReport::default() }
    }
}
