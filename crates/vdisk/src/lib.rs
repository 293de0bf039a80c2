pub mod clock;
pub mod extents;
pub mod spread;
pub mod store;
