use seekless_base::{Bytes, Lba};

use crate::sizing::{PrefetchSize, SizeReport};

/// Every read is extended to one size (\[L\] 3.2.2); longer requests stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub Bytes);

impl PrefetchSize for Fixed {
    fn full(&self, _lba: Option<Lba>, _bitrate: f64) -> Bytes {
        self.0
    }

    fn report(&self) -> SizeReport {
        SizeReport { kind: "fixed".into(), size: self.0.0, target: self.0.0, ..SizeReport::default() }
    }
}
