//! The status text in pieces that fit a frame.

use crate::frame::{Frame, StatusPart};
use crate::header::{FRAME_BYTES_MAX, HEADER_BYTES};

/// Maximum length of the text in one frame.
pub const STATUS_PART_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES - 8;

/// Maximum length of the status text. Hundreds of disks fit; a reader that joins pieces stops here.
pub const STATUS_BYTES_MAX: usize = 1 << 20;

/// Divides a text into frames: at least one, the last one marked. Text beyond [`STATUS_BYTES_MAX`] is not
/// sent.
#[derive(Clone, Debug)]
pub struct StatusParts<'a> {
    rest: Option<&'a [u8]>,
    index: u32,
}

impl<'a> StatusParts<'a> {
    /// The pieces of `text`.
    pub fn new(text: &'a str) -> StatusParts<'a> {
        let text = text.as_bytes();
        StatusParts { rest: Some(text.get(..STATUS_BYTES_MAX).unwrap_or(text)), index: 0 }
    }
}

impl<'a> Iterator for StatusParts<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let rest = self.rest?;
        let (text, after) = rest.split_at_checked(STATUS_PART_BYTES_MAX).unwrap_or((rest, &[]));
        let last = after.is_empty();
        self.rest = if last { None } else { Some(after) };
        let index = self.index;
        self.index += 1;
        Some(Frame::StatusPart(StatusPart { index, last, text }))
    }
}
