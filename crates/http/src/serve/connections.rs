//! Bounds the number of connections, in all and of each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use seekless_base::network;
use seekless_engine::lock;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    most_of_one: usize,
    open: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

/// An open connection, which counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    connections: Arc<Connections>,
    client: IpAddr,
}

impl Connections {
    /// At most `most`, and `most_of_one` of each client.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Arc<Connections> {
        Arc::new(Connections { most, most_of_one, open: Mutex::default() })
    }

    /// Admits a connection, unless a bound is reached.
    pub(crate) fn admit(self: &Arc<Connections>, address: IpAddr) -> Option<Admitted> {
        let client = network(address);
        let mut open = lock(&self.open);
        if open.0 >= self.most {
            return None;
        }
        let of_one = open.1.entry(client).or_default();
        if *of_one >= self.most_of_one {
            return None;
        }
        *of_one += 1;
        open.0 += 1;
        Some(Admitted { connections: self.clone(), client })
    }

    /// Number of open connections.
    pub(crate) fn now(&self) -> usize {
        lock(&self.open).0
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = lock(&self.connections.open);
        open.0 -= 1;
        if let Some(of_one) = open.1.get_mut(&self.client) {
            *of_one -= 1;
            if *of_one == 0 {
                open.1.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_nothing_is_kept_of_those_gone() {
        let all = Connections::new(3, 2);
        let a: IpAddr = "192.0.2.1".parse().unwrap();
        let one = all.admit(a).unwrap();
        let _two = all.admit("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(all.admit(a).is_none(), "two of one client");
        let three = all.admit("2001:db8::1".parse().unwrap()).unwrap();
        assert!(all.admit("192.0.2.2".parse().unwrap()).is_none(), "three in all");
        drop((one, three));
        assert_eq!((all.now(), lock(&all.open).1.len()), (1, 1));
        assert!(all.admit("2001:db8::ffff".parse().unwrap()).is_some());
        assert_eq!(network("2001:db8::1".parse().unwrap()), network("2001:db8::ffff".parse().unwrap()));
    }
}
