//! Settings of a daemon.

use std::path::PathBuf;
use std::time::Duration;

use seekless_policy::Mode;
use seekless_wire as wire;

/// Settings of a daemon, constant while it runs.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// Path of the listening socket; the abstract twin's name follows from it.
    pub socket: PathBuf,
    /// Permission bits of the socket. Those for "others" also decide about other users on the twin.
    pub socket_mode: u32,
    /// Settings of the engine.
    pub engine: seekless_engine::Settings,
    /// Maximum number of open connections; reduced to what the descriptor limit allows.
    pub connections_max: usize,
    /// How long shims may use the mode and prefetch size without asking again.
    pub settings_ttl: Duration,
    /// How long shims ignore a device that is not a disk.
    pub device_ttl: Duration,
    /// Whether another daemon of the same user may take over.
    pub hands_over: bool,
    /// In mode `prefetch`, whether shims read the longer range themselves.
    pub preads: bool,
}

impl DaemonSettings {
    /// The defaults, for a daemon that listens at `socket`.
    ///
    /// Servers drop privileges after they start (`www-data`, `nobody`), so root's daemon lets any local user
    /// connect. Nothing secret passes: a client can only request reads of a descriptor that it already has
    /// open for reading, learns only that they are done, and shares the memory for its reports with no other
    /// user. One user could only exhaust what all share: docs/SECURITY.md has the bounds.
    pub fn new(socket: PathBuf) -> DaemonSettings {
        let root = rustix::process::geteuid().is_root();
        DaemonSettings {
            socket,
            socket_mode: if root { 0o666 } else { 0o600 },
            engine: seekless_engine::Settings::default(),
            connections_max: 4096,
            settings_ttl: Duration::from_secs(1),
            // Long enough to cost nothing, short enough that a reused device number is noticed.
            device_ttl: Duration::from_secs(10),
            hands_over: false,
            preads: false,
        }
    }

    /// Maximum number of connections of one user other than root: three quarters, so that a second user
    /// always gets in.
    pub fn user_share(&self) -> usize {
        crate::shares::of(self.connections_max)
    }

    /// The mode as in the protocol.
    pub(crate) fn wire_mode(&self) -> wire::Mode {
        match self.engine.policy.mode {
            Mode::Off => wire::Mode::Off,
            Mode::Track => wire::Mode::Track,
            Mode::Serialise => wire::Mode::Serialise,
            Mode::Prefetch => wire::Mode::Prefetch,
            Mode::Both => wire::Mode::Both,
        }
    }

    /// The settings for shims. `ring` is the number of the ring for their reports, 0: none.
    pub(crate) fn wire(&self, ring: u8) -> wire::Settings {
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        wire::Settings {
            mode: self.wire_mode(),
            ring,
            settings_ttl_ms: ms(self.settings_ttl),
            prefetch_bytes: self.engine.policy.prefetch.0,
        }
        .by_reads(self.preads)
    }
}
