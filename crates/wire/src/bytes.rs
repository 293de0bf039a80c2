//! Little-endian fields in a byte slice, without a panic path.

use crate::DecodeError;

/// Takes fields off the front of a slice.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// The error of a slice that is too short.
    pub(crate) short: DecodeError,
}

impl Reader<'_> {
    /// Takes bytes that must be zero.
    pub(crate) fn zeros<const N: usize>(&mut self) -> Result<(), DecodeError> {
        match <[u8; N]>::read(self, "reserved")?.into_iter().find(|byte| *byte != 0) {
            Some(value) => Err(DecodeError::Field { name: "reserved", value: value.into() }),
            None => Ok(()),
        }
    }
}

/// Puts fields into a slice one behind the other; `overflow` if they do not fit.
pub(crate) struct Writer<'a> {
    pub(crate) buf: &'a mut [u8],
    pub(crate) at: usize,
    pub(crate) overflow: bool,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.at.saturating_add(bytes.len());
        match self.buf.get_mut(self.at..end) {
            Some(slot) => {
                slot.copy_from_slice(bytes);
                self.at = end;
            }
            None => self.overflow = true,
        }
    }

    pub(crate) fn zeros<const N: usize>(&mut self) {
        self.put(&[0; N]);
    }
}

/// What a frame has in it.
pub(crate) trait Field<'a>: Sized {
    /// Its size, or that of its fixed part.
    const BYTES: usize;

    fn write(self, w: &mut Writer<'_>);

    /// `name` is that of the field, for an error.
    fn read(r: &mut Reader<'a>, name: &'static str) -> Result<Self, DecodeError>;
}

impl<const N: usize> Field<'_> for [u8; N] {
    const BYTES: usize = N;

    fn write(self, w: &mut Writer<'_>) {
        w.put(&self);
    }

    fn read(r: &mut Reader<'_>, _: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = r.rest.split_first_chunk().ok_or(r.short)?;
        r.rest = rest;
        Ok(*head)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field<'_> for $number {
            const BYTES: usize = size_of::<$number>();

            fn write(self, w: &mut Writer<'_>) {
                w.put(&self.to_le_bytes());
            }

            fn read(r: &mut Reader<'_>, name: &'static str) -> Result<$number, DecodeError> {
                Field::read(r, name).map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64);

impl Field<'_> for bool {
    const BYTES: usize = 1;

    fn write(self, w: &mut Writer<'_>) {
        u8::from(self).write(w);
    }

    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<bool, DecodeError> {
        match u8::read(r, name)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Field { name, value: other.into() }),
        }
    }
}

/// The rest of the frame.
impl<'a> Field<'a> for &'a [u8] {
    const BYTES: usize = 0;

    fn write(self, w: &mut Writer<'_>) {
        w.put(self);
    }

    fn read(r: &mut Reader<'a>, _: &'static str) -> Result<&'a [u8], DecodeError> {
        Ok(core::mem::take(&mut r.rest))
    }
}
