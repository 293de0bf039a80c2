//! The network between the server and its clients.
//!
//! The server's link carries one block after another, in the order in which it gets them. Behind it each
//! client has a link with its own rate, as Dummynet gave the paper's (\[X\] 4.3). A client's socket buffer on
//! the server holds a few blocks; while it is full, the server sends nothing more to that client. So the
//! server's link is shared evenly among all clients whose own link is faster.
//!
//! Delay and loss act through the rate that a TCP connection reaches: the smaller of its link's rate and MSS
//! / (RTT x sqrt(2p/3)), times 1 - p because lost segments are sent twice. This is the square-root law of TCP
//! Reno for a loss share p without timeouts (Padhye et al. 2000, the paper's \[21\], first term, every
//! segment acknowledged); the paper says its losses lead to duplicate acknowledgments rather than timeouts
//! (5.4). Send windows are assumed to be so large that delay alone costs nothing.

use seekless_base::Nanos;

/// Payload of a jumbo Ethernet packet of 9000 bytes (\[X\] 4.3) less IP and TCP headers with timestamps.
pub const SEGMENT_BYTES: f64 = 8948.0;

/// Blocks a client's socket buffer holds: one on the wire, one behind it.
const SOCKET_BLOCKS: u32 = 2;

/// Bytes a second a connection carries over a link of `rate` bytes a second.
pub fn goodput(rate: f64, round_trip: Nanos, loss: f64) -> f64 {
    if loss <= 0.0 {
        return rate;
    }
    let reno = SEGMENT_BYTES / (round_trip.as_secs_f64() * (2.0 * loss / 3.0).sqrt());
    rate.min(reno) * (1.0 - loss)
}

/// The server's link.
#[derive(Clone, Debug)]
pub(super) struct ServerLink {
    rate: f64,
    free: Nanos,
}

/// A client's link and socket buffer.
#[derive(Clone, Debug)]
pub(super) struct ClientLink {
    rate: f64,
    free: Nanos,
    outstanding: u32,
}

impl ServerLink {
    pub(super) fn new(rate: f64) -> ServerLink {
        ServerLink { rate, free: Nanos::ZERO }
    }

    /// Gives a block to a client's connection. Returns when the client has it.
    pub(super) fn send(&mut self, now: Nanos, client: &mut ClientLink, bytes: u64) -> Nanos {
        self.free = self.free.max(now) + Nanos::from_secs_f64(bytes as f64 / self.rate);
        client.free = client.free.max(self.free) + Nanos::from_secs_f64(bytes as f64 / client.rate);
        client.outstanding += 1;
        client.free
    }
}

impl ClientLink {
    pub(super) fn new(rate: f64) -> ClientLink {
        ClientLink { rate, free: Nanos::ZERO, outstanding: 0 }
    }

    /// Whether the socket buffer has room for another block.
    pub(super) fn has_room(&self) -> bool {
        self.outstanding < SOCKET_BLOCKS
    }

    /// A block has arrived at the client. Returns whether the buffer was full before.
    pub(super) fn delivered(&mut self) -> bool {
        let full = !self.has_room();
        self.outstanding = self.outstanding.saturating_sub(1);
        full
    }

    /// Whether everything sent has arrived.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_the_links_without_loss_and_follows_the_square_root_with_it() {
        let t3 = 44.736e6 / 8.0;
        assert_eq!(goodput(t3, Nanos::from_millis(75), 0.0), t3);
        // Loss without delay costs only the retransmissions.
        assert!((goodput(t3, Nanos::from_millis(1), 0.1) / t3 - 0.9).abs() < 1e-9);
        // Together they slow a T3 link by an order of magnitude ([X] 5.4); T1 loses only the retransmissions.
        let both = goodput(t3, Nanos::from_millis(75), 0.1);
        assert!((t3 / both - 13.5).abs() < 0.1, "{}", t3 / both);
        let t1 = 1.544e6 / 8.0;
        assert!((goodput(t1, Nanos::from_millis(75), 0.1) / t1 - 0.9).abs() < 1e-9);
        let twice = goodput(t3, Nanos::from_millis(150), 0.1);
        assert!((both / twice - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_full_buffer_holds_back_and_the_servers_link_is_shared() {
        let mut server = ServerLink::new(1000.0);
        let (mut a, mut b) = (ClientLink::new(100.0), ClientLink::new(1000.0));
        assert_eq!(server.send(Nanos::ZERO, &mut a, 100), Nanos::from_millis(1100));
        assert_eq!(server.send(Nanos::ZERO, &mut b, 100), Nanos::from_millis(300));
        assert_eq!(server.send(Nanos::ZERO, &mut a, 100), Nanos::from_millis(2100));
        assert!(!a.has_room() && b.has_room());
        assert!(a.delivered() && !b.delivered() && b.is_idle() && !a.is_idle());
    }
}
