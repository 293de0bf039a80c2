//! Servers as what they are for a disk: how many threads may wait for it, and what one call of them asks for.

use std::collections::VecDeque;

use super::config::{How, ServerModel};

/// `sendfile` moves bytes through a pipe of 16 pages.
const SPLICE: u64 = 64 << 10;

impl ServerModel {
    /// nginx: event workers (one a processor), each blocking in `sendfile`, at most 2 MiB a call
    /// (`sendfile_max_chunk`).
    pub fn nginx(workers: u32) -> ServerModel {
        ServerModel {
            pools: workers,
            threads: Some(1),
            call: 2 << 20,
            unit: SPLICE,
            turn: 2 << 20,
            how: How::Send,
            within_socket: false,
            random: false,
        }
    }

    /// nginx with `aio threads`: a pool of 32 threads a worker.
    pub fn nginx_threads(workers: u32) -> ServerModel {
        ServerModel { threads: Some(32), ..ServerModel::nginx(workers) }
    }

    /// nginx with `aio threads`, `sendfile off`: reads of 32 KiB (`output_buffers`).
    pub fn nginx_reads(workers: u32) -> ServerModel {
        ServerModel {
            call: 32 << 10,
            unit: 32 << 10,
            turn: 32 << 10,
            how: How::Read,
            ..ServerModel::nginx_threads(workers)
        }
    }

    /// Apache's event module as Debian ships it: 150 threads, files mapped.
    pub fn apache() -> ServerModel {
        ServerModel {
            pools: 1,
            threads: Some(150),
            call: u64::MAX,
            unit: SPLICE,
            turn: u64::MAX,
            how: How::Map,
            within_socket: false,
            random: false,
        }
    }

    /// The same with `EnableMMAP Off`, `EnableSendfile On`.
    pub fn apache_send() -> ServerModel {
        ServerModel { how: How::Send, ..ServerModel::apache() }
    }

    /// lighttpd: one thread for everything, 256 KiB of a client at a time.
    pub fn lighttpd() -> ServerModel {
        ServerModel {
            pools: 1,
            threads: Some(1),
            call: 256 << 10,
            unit: SPLICE,
            turn: 256 << 10,
            how: How::Send,
            within_socket: false,
            random: false,
        }
    }

    /// A thread a client, each in `read`: request handlers that work on what they read.
    pub fn handlers() -> ServerModel {
        ServerModel { how: How::Read, ..ServerModel::threads() }
    }

    /// Programs that read files in calls of 32 KiB, as `sha256sum` does.
    pub fn checksums() -> ServerModel {
        ServerModel { call: 32 << 10, how: How::Read, ..ServerModel::threads() }
    }

    /// A thread a client, each in `sendfile`: `seekless-lab file-server`, and the userver with its helpers.
    pub fn threads() -> ServerModel {
        ServerModel {
            pools: 1,
            threads: None,
            call: u64::MAX,
            unit: SPLICE,
            turn: u64::MAX,
            how: How::Send,
            within_socket: false,
            random: false,
        }
    }

    /// The userver of \[L\] section 5: so many processes, each an event loop that blocks while it reads.
    pub fn userver(processes: u32) -> ServerModel {
        ServerModel { pools: processes, threads: Some(1), ..ServerModel::asap() }
    }

    /// The same with a helper thread that reads (\[A\] section 6.1, \[L\] section 3.1), so that its event
    /// loop never blocks.
    pub fn asap() -> ServerModel {
        ServerModel { within_socket: true, ..ServerModel::threads() }
    }
}

/// Threads that take connections in the order in which they became ready.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Numbers of idle threads, the one used last on top; `None`: there is always one, the connection's own.
    idle: Option<Vec<u32>>,
    queue: VecDeque<u32>,
}

impl Pool {
    pub(crate) fn new(number: u32, threads: Option<u32>) -> Pool {
        let idle = threads.map(|n| (0..n).rev().map(|i| number * 10_000 + i).collect());
        Pool { idle, queue: VecDeque::new() }
    }

    /// A connection has something to do.
    pub(crate) fn ready(&mut self, connection: u32) {
        self.queue.push_back(connection);
    }

    /// The next connection that gets a thread, with its number.
    pub(crate) fn next(&mut self) -> Option<(u32, u32)> {
        match &mut self.idle {
            None => self.queue.pop_front().map(|c| (c, 1_000_000 + c)),
            Some(idle) => {
                let thread = *idle.last()?;
                let connection = self.queue.pop_front()?;
                idle.pop();
                Some((connection, thread))
            }
        }
    }

    /// A thread is free again.
    pub(crate) fn release(&mut self, thread: u32) {
        if let Some(idle) = &mut self.idle {
            idle.push(thread);
        }
    }
}
