use crate::{PrefetchSize, Request};

/// No extension: "identical to prefetching with a prefetch size of zero" ([L] 3.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsAsked;

impl PrefetchSize for AsAsked {
    fn read_len(&self, _request: &Request, wanted: u64) -> u64 {
        wanted
    }

    fn name(&self) -> &'static str {
        "as_asked"
    }
}
