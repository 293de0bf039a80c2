use seekless_units::Bytes;

use crate::{PrefetchSize, Request};

/// Every read is extended to one size ([L] 3.2.2): longer requests stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub Bytes);

impl PrefetchSize for Fixed {
    fn read_len(&self, _request: &Request, wanted: u64) -> u64 {
        wanted.max(self.0.0)
    }

    fn name(&self) -> &'static str {
        "fixed"
    }
}
