//! The download client: one URL, one verified file.
//!
//! Data is written at its place in `NAME.part`. A block map beside it (`NAME.part.map`) says which bytes have
//! arrived and what identifies the file on the server. After an interruption, a download requests what is
//! missing, on the condition that the file is still the same; otherwise it starts over. Only a file of the
//! right length (and digest, if the server states one) gets its final name, after it has been synced.
//!
//! Servers are asked for the parts in any order (`Prefer: any-order`, see docs/HTTP.md). Every kind of answer
//! is accepted: parts in any order, one range, or the whole file.

mod attempt;
mod connect;
mod part;
mod place;
mod proxy;
mod redirect;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use serde::Serialize;
use tokio::sync::watch;

use self::attempt::{Asking, Trouble};
pub use self::connect::{Trust, trust};
use self::part::{Checked, PartFile};
pub use self::place::Place;
pub(crate) use self::place::shown;
pub use self::proxy::Proxies;
use self::redirect::REDIRECTS_MAX;

/// First pause before another attempt; doubled each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Most restarts because the file changed on the server, before giving up.
const RESTARTS_MAX: u32 = 3;

/// How downloads are done.
#[derive(Clone)]
pub struct Options {
    /// Most retries in a row that bring nothing new.
    pub retries: u32,
    /// Longest silence of a server, and longest time for connecting.
    pub timeout: Duration,
    /// Request parts in any order.
    pub any_order: bool,
    /// Certificate authorities.
    pub trust: Trust,
    /// Proxies to use.
    pub proxies: Proxies,
    /// Longest file; `None`: any length that the server states, and half of the free space if it states none.
    pub size_max: Option<u64>,
}

/// The result of a download.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Size of the file.
    pub bytes: u64,
    /// Bytes of these that an earlier, interrupted run has left.
    pub resumed_bytes: u64,
    /// Bytes of the file received over the network, duplicates included.
    pub received_bytes: u64,
    /// Requests made, redirects included.
    pub requests: u32,
    /// How often all data was discarded because the file had changed.
    pub restarts: u32,
    /// The server sent the parts in its own order.
    pub any_order: bool,
    /// The digest that was checked.
    pub digest: Option<&'static str>,
    /// How long it took, milliseconds.
    pub elapsed_ms: u64,
}

/// Receives the progress of a download.
pub trait Progress {
    /// `have` of `size` bytes have arrived; the size may be unknown.
    fn at(&self, have: u64, size: Option<u64>);

    /// An attempt has failed; the next one begins after this pause.
    fn again(&self, _why: &str, _pause: Duration) {}
}

/// Why a download failed. The data that has arrived is kept for the next run, except after a wrong digest.
fn given_up(url: &str, why: &str) -> Fault {
    Fault::failed(format!("{url}: {why}"))
}

/// Downloads `url` into the file `target`. `stop` interrupts it.
///
/// # Errors
/// One line that says what went wrong; the final name then has no new file.
pub async fn download(
    url: &str,
    target: &Path,
    options: &Options,
    progress: &dyn Progress,
    stop: &mut watch::Receiver<bool>,
) -> Result<Outcome, Fault> {
    let began = Instant::now();
    let origin = parse(url)?;
    let url = &shown(url);
    let mut place = origin.clone();
    let mut part = PartFile::open(target, url, options.size_max)?;
    let mut outcome = Outcome { resumed_bytes: part.have(), ..Outcome::default() };
    let mut asking = Asking { ranges: true, any_order: options.any_order };
    let (mut failures, mut redirects) = (0, 0);
    // Bytes that had arrived before the first request to this place.
    let mut had_there = part.have();
    // Most bytes of this edition that were ever here. An attempt that starts over and gets less far brings
    // nothing new.
    let mut best = part.have();
    loop {
        let tried = tokio::select! {
            tried = attempt::attempt(&place, asking, options, &mut part, &mut outcome, progress) => tried,
            _ = stop.wait_for(|stop| *stop) => {
                part.save()?;
                return Err(Fault::new(Exit::Interrupted, format!("{url}: interrupted; the same command resumes it")));
            }
        };
        let trouble = match tried {
            Ok(()) if part.complete() => match part.check() {
                Ok(Checked::Right(digest)) => {
                    outcome.digest = digest;
                    break;
                }
                // Most likely the server mixed two editions.
                Ok(Checked::Wrong { digest, joined: true }) => Trouble::Changed(format!(
                    "the file does not have the {digest} digest that the server stated"
                )),
                Ok(Checked::Wrong { digest, joined: false }) => {
                    let why = format!(
                        "the file does not have the {digest} digest that the server stated; it was discarded"
                    );
                    return Err(given_up(url, &why));
                }
                Err(fault) => return Err(Fault::new(fault.exit, format!("{url}: {}", fault.message))),
            },
            Ok(()) => Trouble::Again("the answer ended before the file was complete".into(), None),
            Err(trouble) => trouble,
        };
        let (why, pause) = match trouble {
            Trouble::Fatal(fault) => {
                part.save()?;
                return Err(Fault::new(fault.exit, format!("{url}: {}", fault.message)));
            }
            Trouble::Moved(to) => {
                redirects += 1;
                if redirects > REDIRECTS_MAX {
                    return Err(given_up(url, "too many redirects"));
                }
                place = *to;
                had_there = part.have();
                continue;
            }
            // This place sent part of the file before it refused (an expired URL): ask the original server
            // again.
            Trouble::Refused(fault) if place != origin && part.have() > had_there => {
                place = origin.clone();
                redirects = 0;
                (fault.message, None)
            }
            Trouble::Refused(fault) => {
                part.save()?;
                return Err(given_up(url, &fault.message));
            }
            Trouble::Plainly(why) if asking.ranges => {
                tracing::debug!(url, why, "asking for the whole file instead");
                asking = Asking { ranges: false, any_order: false };
                part.reset()?;
                continue;
            }
            Trouble::Changed(why) => {
                outcome.restarts += 1;
                outcome.resumed_bytes = 0;
                part.reset()?;
                best = 0;
                if outcome.restarts > RESTARTS_MAX {
                    return Err(given_up(url, &format!("{why}; it keeps changing, try again later")));
                }
                (why, None)
            }
            Trouble::Plainly(why) => (why, None),
            Trouble::Again(why, pause) => (why, pause),
        };
        failures = if part.have() > best { 1 } else { failures + 1 };
        best = best.max(part.have());
        if failures > options.retries {
            part.save()?;
            return Err(given_up(
                url,
                &match failures {
                    1 => format!("{why}; gave up at the first attempt"),
                    n => format!("{why}; gave up after {n} attempts in a row"),
                },
            ));
        }
        part.save()?;
        let doubled = PAUSE * 2u32.saturating_pow(failures.min(10) - 1);
        let pause = pause.unwrap_or(doubled).min(PAUSE_MAX);
        tracing::info!(url, why, ?pause, "another attempt");
        progress.again(&why, pause);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => {
                return Err(Fault::new(Exit::Interrupted, format!("{url}: interrupted; the same command resumes it")));
            }
        }
    }
    part.finish()?;
    outcome.bytes = part.have();
    outcome.elapsed_ms = began.elapsed().as_millis() as u64;
    Ok(outcome)
}

/// An `http` or `https` URL with a host.
///
/// # Errors
/// Anything else.
pub fn parse(url: &str) -> Result<Place, Fault> {
    Place::parse(url)
}

/// The file name of a URL if none is given: its last segment.
///
/// # Errors
/// The last segment of the URL cannot be a file name.
pub fn file_name(url: &str) -> Result<String, Fault> {
    let place = parse(url)?;
    let last = place.path().rsplit('/').next().unwrap_or_default();
    let resolved = crate::path::resolve(&format!("/{last}")).ok();
    let name = resolved.and_then(|t| t.path.into_os_string().into_string().ok()).unwrap_or_default();
    if name.is_empty() {
        return Err(Fault::usage(format!(
            "{}: does not end in the name of a file; give one with -o",
            shown(url)
        )));
    }
    Ok(name)
}

/// The settings shared by all connections.
pub(crate) type Tls = Arc<rustls::ClientConfig>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_urls() {
        assert_eq!(file_name("http://h/a/film.mp4?x=1#y").unwrap(), "film.mp4");
        assert_eq!(file_name("http://h/a/my%20film").unwrap(), "my film");
        for none in
            ["http://h", "http://h/", "http://h/a/", "http://h/a/..", "http://h/%2e%2e", "http://h/a%2fb"]
        {
            assert_eq!(file_name(none).unwrap_err().exit, Exit::Usage, "{none}");
        }
        for wrong in ["ftp://h/x", "film.mp4", "", "http:///x", "http://h h/x"] {
            assert_eq!(parse(wrong).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
