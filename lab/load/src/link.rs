//! The client's link: how fast its bytes may be taken from the socket.
//!
//! A viewer on a 3.5 Mb/s line keeps the server's connection busy for a second and more for each segment.
//! Reading no faster than that (with a small receive buffer) lets TCP push back to the server exactly as a
//! slow line does, and no privilege is needed, as it would be for a traffic shaper in the kernel.
//!
//! The link is a queue with one server: bytes leave it one after the other, each taking its time. Reads
//! happen in quanta; [`Link::free_at`] says when the last byte taken has really left the link. Not modelled:
//! slow start, loss.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use seekless_base::Nanos;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::clock::Clock;

/// Real time of one quantum of reading. A read costs about 10 us of processor time (timer, poll, system
/// call), so this keeps a transferring client below 0.03 % of a core, while 40 ms are far below every latency
/// we judge.
const QUANTUM_S: f64 = 0.040;
/// Smallest quantum: less would be less than a loopback segment carries.
const QUANTUM_MIN: f64 = 8.0 * 1024.0;
/// Largest quantum: bounds the buffer behind it.
const QUANTUM_MAX: f64 = 256.0 * 1024.0;
/// How far behind a late reader may be and still catch up, in quanta. Timers fire late by a millisecond or
/// so; without catching up the link would be that much slower. A link that waits for the server saves nothing
/// up.
const CATCH_UP_QUANTA: f64 = 2.0;

/// The state of a link. Pure: time comes in as an argument.
#[derive(Clone, Debug)]
pub struct Link {
    ns_per_byte: f64,
    quantum: usize,
    catch_up: Nanos,
    free_at: Nanos,
}

impl Link {
    /// A link of `bits_per_s` (in the workload's time; at least 1) on a clock that runs `speedup` times
    /// faster than real time.
    pub fn new(bits_per_s: u64, speedup: f64) -> Link {
        let bytes_per_s = bits_per_s.max(1) as f64 / 8.0;
        let quantum = (bytes_per_s * speedup * QUANTUM_S).clamp(QUANTUM_MIN, QUANTUM_MAX);
        let ns_per_byte = 1e9 / bytes_per_s;
        Link {
            ns_per_byte,
            quantum: quantum as usize,
            catch_up: Nanos((quantum * ns_per_byte * CATCH_UP_QUANTA) as u64),
            free_at: Nanos::ZERO,
        }
    }

    /// Bytes taken at most in one read.
    pub fn quantum(&self) -> usize {
        self.quantum
    }

    /// When every byte taken so far has left the link.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// How many bytes may be read now.
    ///
    /// # Errors
    /// None yet: ask again at this time.
    pub fn may_read(&self, now: Nanos) -> Result<usize, Nanos> {
        if self.free_at <= now { Ok(self.quantum) } else { Err(self.free_at) }
    }

    /// `n` bytes were read. `idle`: the link had been waiting for them (else they had been waiting for the
    /// link).
    pub fn took(&mut self, now: Nanos, n: usize, idle: bool) {
        let from = self.free_at.max(if idle { now } else { now - self.catch_up });
        self.free_at = from + Nanos((n as f64 * self.ns_per_byte) as u64);
    }
}

/// A stream read no faster than a link allows; writes pass through.
pub struct PacedStream<S> {
    inner: S,
    link: Option<Rc<RefCell<Link>>>,
    clock: Clock,
    /// Set while waiting for the link.
    wake: Option<Pin<Box<Sleep>>>,
    /// The link has nothing to carry: the next bytes begin when they come.
    idle: bool,
}

impl<S> PacedStream<S> {
    /// `inner` behind `link`, or at full speed if there is none.
    pub fn new(inner: S, link: Option<Rc<RefCell<Link>>>, clock: Clock) -> PacedStream<S> {
        PacedStream { inner, link, clock, wake: None, idle: true }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(link) = &this.link else {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        };
        if let Some(wake) = &mut this.wake {
            ready!(wake.as_mut().poll(cx));
            this.wake = None;
        }
        let now = this.clock.now();
        let limit = match link.borrow().may_read(now) {
            Ok(n) => n,
            Err(later) => {
                let mut wake = Box::pin(tokio::time::sleep_until(this.clock.instant(later)));
                match wake.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.wake = Some(wake);
                        return Poll::Pending;
                    }
                    // Rounding: the instant is now.
                    Poll::Ready(()) => link.borrow().quantum(),
                }
            }
        };
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(limit.min(buf.remaining())));
        match Pin::new(&mut this.inner).poll_read(cx, &mut part) {
            Poll::Pending => {
                this.idle = true;
                return Poll::Pending;
            }
            Poll::Ready(result) => result?,
        }
        let n = part.filled().len();
        buf.advance(n);
        link.borrow_mut().took(now, n, this.idle);
        this.idle = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_link_delivers_at_its_rate_and_idles_without_saving_up() {
        let mut link = Link::new(8_000_000, 1.0);
        assert_eq!(link.quantum(), 40_000);
        let start = Nanos::from_secs(5);
        let mut now = start;
        // Timers that fire a millisecond late cost nothing over a whole transfer: 4 MB at 1 MB/s.
        for i in 0..100 {
            let n = link.may_read(now).unwrap();
            link.took(now, n, i == 0);
            assert_eq!(link.may_read(now), Err(link.free_at()));
            now = link.free_at() + Nanos::from_millis(1);
        }
        assert_eq!(link.free_at().since(start), Nanos::from_secs(4));
        // Five seconds of nothing to carry are lost.
        now += Nanos::from_secs(5);
        link.took(now, 40_000, true);
        assert_eq!(link.free_at(), now + Nanos::from_millis(40));
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_stream_keeps_to_its_rate() {
        for (bits, speedup) in [(3_500_000, 1.0), (10_000_000, 1.0), (10_000_000, 8.0)] {
            let clock = Clock::start(speedup);
            let (ours, mut theirs) = tokio::io::duplex(64 << 10);
            let writer = tokio::spawn(async move { theirs.write_all(&vec![7; 1_000_000]).await });
            let link = Rc::new(RefCell::new(Link::new(bits, speedup)));
            let mut paced = PacedStream::new(ours, Some(link.clone()), clock);
            let mut got = Vec::new();
            paced.read_to_end(&mut got).await.unwrap();
            writer.await.unwrap().unwrap();
            assert_eq!(got, vec![7; 1_000_000]);
            let expected = 8e6 / bits as f64;
            let took = link.borrow().free_at().as_secs_f64();
            assert!((took / expected - 1.0).abs() < 0.01, "{bits} x{speedup}: {took} s, expected {expected}");
        }
    }
}
