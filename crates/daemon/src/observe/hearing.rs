//! The devices whose events are received: those of the folders, without those that turned out not to be
//! served.
//!
//! An event costs its reader some hundred nanoseconds, even if it is not needed. A device without heads is
//! read fast, so it raises more events than all others. The filter of an open event cannot be changed. So the
//! rings are opened anew without the device, and with it again after a while, because it may be served by
//! then.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use seekless_kernel::cacheevents::{Attachment, CacheEvent, CacheEvents, Drained};
use seekless_kernel::tracepoint::TraceError;

use super::table::REFUSED_FOR;

/// Major and minor number of a file system's device.
pub(super) type Device = (u32, u32);

/// The open rings.
#[derive(Debug)]
pub(super) struct Hearing {
    devices: Vec<Device>,
    /// The way by which events are received.
    pub(super) attachment: Attachment,
    /// Devices without events, and until when.
    left_out: Vec<(Device, Instant)>,
    /// `None` if every device is left out.
    events: Option<CacheEvents>,
}

impl Hearing {
    /// Receives the events of all of them, in this way, else the best.
    ///
    /// # Errors
    /// Those of [`CacheEvents::open`].
    pub(super) fn open(devices: Vec<Device>, by: Option<Attachment>) -> Result<Hearing, TraceError> {
        let events = match by {
            Some(attachment) => CacheEvents::open_by(attachment, &devices)?,
            None => CacheEvents::open(&devices)?,
        };
        let attachment = events.attachment();
        Ok(Hearing { devices, attachment, left_out: Vec::new(), events: Some(events) })
    }

    /// No file of this device is served: it is left out as long as a refused file is ignored.
    pub(super) fn leave_out(&mut self, device: Device, now: Instant) {
        if !self.left_out.iter().any(|(known, _)| *known == device) {
            self.left_out.push((device, now + REFUSED_FOR));
            self.reopen();
        }
    }

    /// Includes the devices again that were left out for long enough.
    pub(super) fn take_back(&mut self, now: Instant) {
        let before = self.left_out.len();
        self.left_out.retain(|&(_, until)| now < until);
        if self.left_out.len() < before {
            self.reopen();
        }
    }

    /// Opens the rings anew. Reads between the last round and the opening of a ring are lost. If the kernel
    /// refuses new rings, the old ones stay.
    fn reopen(&mut self) {
        let left_out = |device: &Device| self.left_out.iter().any(|(known, _)| known == device);
        let devices: Vec<Device> = self.devices.iter().copied().filter(|d| !left_out(d)).collect();
        tracing::debug!(?devices, "listening");
        if devices.is_empty() {
            self.events = None;
            return;
        }
        match CacheEvents::open_by(self.attachment, &devices) {
            Ok(events) => self.events = Some(events),
            Err(why) => tracing::debug!(%why, "the rings stay as they are"),
        }
    }

    /// Appends the events in the rings, in order of time.
    pub(super) fn drain(&mut self, into: &mut Vec<CacheEvent>) -> Drained {
        self.events.as_mut().map_or_else(Drained::default, |events| events.drain(into))
    }

    /// Descriptors that become readable when a ring fills.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().map(CacheEvents::descriptor)
    }
}
