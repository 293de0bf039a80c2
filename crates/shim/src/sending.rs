//! How a `sendfile` of a whole file is divided into parts.

use libc::{size_t, ssize_t};
use seekless_base::wants::SERVE_LOOK_MAX;

/// Length of a part: the bytes that `seekless serve` sends at once, for the same reason. A socket takes about
/// as much, so the parts for a slow client follow at the pace of its link.
const PART_BYTES: size_t = SERVE_LOOK_MAX as size_t;

/// Maximum that one call sends, whatever is requested (`MAX_RW_COUNT` of the kernel, with pages of 4 KiB).
const CALL_BYTES_MAX: size_t = 0x7fff_f000;

/// A call of the host in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Bytes not sent yet.
    left: size_t,
    /// Bytes sent.
    sent: size_t,
    /// Whether the call may be divided.
    divisible: bool,
}

impl Sending {
    /// A call for `count` bytes.
    pub(crate) fn of(count: size_t) -> Sending {
        // A negative count is an error that the kernel must find.
        Sending { left: count, sent: 0, divisible: count > PART_BYTES && count <= ssize_t::MAX as size_t }
    }

    /// Number of bytes to check before the next part. Before the first, all bytes of the call, so that a miss
    /// is judged like that of the whole call. Later only the part, so that resident bytes are sent at once.
    pub(crate) fn looked_at(self) -> size_t {
        if self.sent == 0 { self.left } else { self.left.min(PART_BYTES) }
    }

    /// Number of bytes to send next. `followed`: the daemon gets a report of each part. Otherwise the rest is
    /// sent in one.
    pub(crate) fn part(self, followed: bool) -> size_t {
        match (self.sent, followed && self.divisible) {
            (_, true) => self.left.min(PART_BYTES),
            (0, false) => self.left,
            (sent, false) => self.left.min(CALL_BYTES_MAX.saturating_sub(sent)),
        }
    }

    /// Whether a part has been sent, so that an error is no longer the call's result.
    pub(crate) fn has_sent(self) -> bool {
        self.sent > 0
    }

    /// The result of the host's call after `part` bytes were requested and the original has returned
    /// `result`; `None` if the next part follows.
    pub(crate) fn ended(&mut self, part: size_t, result: ssize_t) -> Option<ssize_t> {
        let Ok(sent) = size_t::try_from(result) else {
            return Some(if self.sent > 0 { self.sent as ssize_t } else { result });
        };
        self.sent = self.sent.saturating_add(sent);
        self.left = self.left.saturating_sub(sent);
        let on = self.divisible && sent == part && self.left > 0 && self.sent < CALL_BYTES_MAX;
        (!on).then_some(self.sent as ssize_t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends with a socket that takes `takes` bytes of each call in turn. Returns the parts and the result.
    fn send(count: size_t, followed: bool, takes: &[ssize_t]) -> (Vec<size_t>, ssize_t) {
        let mut plan = Sending::of(count);
        let mut parts = Vec::new();
        for &takes in takes {
            let part = plan.part(followed);
            parts.push(part);
            if let Some(result) = plan.ended(part, takes.min(part as ssize_t)) {
                return (parts, result);
            }
        }
        panic!("it goes on after {parts:?}");
    }

    const P: size_t = PART_BYTES;
    const ALL: ssize_t = ssize_t::MAX;

    #[test]
    fn a_whole_file_goes_in_parts_where_it_is_followed() {
        assert_eq!(send(2 * P + 10, true, &[ALL; 3]), (vec![P, P, 10], 2 * P as ssize_t + 10));
        assert_eq!(send(2 * P, true, &[ALL; 2]), (vec![P, P], 2 * P as ssize_t));
        assert_eq!(send(2 * P, false, &[ALL]), (vec![2 * P], 2 * P as ssize_t));
        assert_eq!(send(P, true, &[ALL]), (vec![P], P as ssize_t));
    }

    #[test]
    fn it_ends_where_one_call_would() {
        assert_eq!(send(9 * P, true, &[ALL, 100]), (vec![P, P], P as ssize_t + 100), "a socket is full");
        assert_eq!(send(9 * P, true, &[ALL, 0]), (vec![P, P], P as ssize_t), "the file ends");
        assert_eq!(send(9 * P, true, &[ALL, -1]), (vec![P, P], P as ssize_t), "an error later");
        assert_eq!(send(9 * P, true, &[-1]), (vec![P], -1), "an error at once");
        assert_eq!(send(0, true, &[0]), (vec![0], 0));
        assert_eq!(
            send(size_t::MAX, true, &[-1]),
            (vec![size_t::MAX], -1),
            "a negative count is the kernel's"
        );
    }

    #[test]
    fn it_sends_no_more_than_the_kernel_does_in_one_call() {
        let parts = CALL_BYTES_MAX.div_ceil(P);
        let (sent, result) = send(8 << 30, true, &vec![ALL; parts]);
        assert_eq!(sent.len(), parts);
        assert!((CALL_BYTES_MAX..CALL_BYTES_MAX + P).contains(&(result as size_t)));
    }

    #[test]
    fn when_nobody_listens_any_more_the_rest_goes_in_one() {
        let mut plan = Sending::of(4 * P);
        assert_eq!((plan.looked_at(), plan.part(true)), (4 * P, P));
        assert_eq!(plan.ended(P, P as ssize_t), None);
        assert_eq!((plan.looked_at(), plan.part(true), plan.part(false)), (P, P, 3 * P));
        assert_eq!(plan.ended(3 * P, 3 * P as ssize_t), Some(4 * P as ssize_t));
    }
}
