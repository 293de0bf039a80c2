//! The placement of files by HAProxy with `deploy/haproxy.cfg`: consistent hashing on the path (`balance uri
//! path-only`, `hash-type consistent sdbm avalanche`).
//!
//! As in HAProxy 2.6 (`hash_sdbm`, `full_hash`, `lb_chash.c`): a node of weight 1 has 16 places on a ring of
//! 32 bits, and a file belongs to the place next to its hash, on either side. If its node is at its bound
//! (`hash-balance-factor`, `chash_server_is_eligible`), the search goes on along the ring.

/// Places of a node on the ring (`BE_WEIGHT_SCALE` times the default weight).
const PLACES: u32 = 16;
/// Numbers kept free for the places of one node (`SRV_EWGHT_RANGE`).
const RANGE: u32 = 4096;

/// Bob Jenkins' full avalanche of an integer, spread by a large prime.
fn avalanche(mut a: u32) -> u32 {
    a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    a = (a ^ 0xc761_c23c) ^ (a >> 19);
    a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(3_221_225_473)
}

fn hash(path: &str) -> u32 {
    let sdbm = |h: u32, c: u8| u32::from(c).wrapping_add(h << 6).wrapping_add(h << 16).wrapping_sub(h);
    avalanche(path.bytes().fold(0, sdbm))
}

/// The ring of this many nodes.
#[derive(Clone, Debug)]
pub struct Ring(Vec<(u32, u32)>);

impl Ring {
    /// Nodes are numbered from 1 on, in the order of the configuration; all are up.
    pub fn new(nodes: u32) -> Ring {
        Ring::of(1..=nodes.max(1))
    }

    /// A ring of these nodes, at least one.
    pub fn of(nodes: impl IntoIterator<Item = u32>) -> Ring {
        let places = |node: u32| {
            (0..PLACES).map(move |place| (avalanche(node.wrapping_mul(RANGE).wrapping_add(place)), node))
        };
        let mut ring: Vec<(u32, u32)> = nodes.into_iter().flat_map(places).collect();
        ring.sort_unstable();
        Ring(ring)
    }

    /// The node for a path, which begins with a slash.
    pub fn node(&self, path: &str) -> u32 {
        self.node_with_room(path, |_| true)
    }

    /// The same among those with room; its own node if none has room.
    pub fn node_with_room(&self, path: &str, has_room: impl Fn(u32) -> bool) -> u32 {
        let (hash, places) = (hash(path), self.0.len());
        let at = self.0.partition_point(|place| place.0 < hash);
        let (next, last) = (at % places, (at + places - 1) % places);
        let is_last = hash.wrapping_sub(self.0[last].0) <= self.0[next].0.wrapping_sub(hash);
        let own = if is_last { last } else { next };
        let mut along = (0..places).map(|i| self.0[(own + i) % places].1);
        along.find(|node| has_room(*node)).unwrap_or(self.0[own].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of HAProxy 2.6.12 with `deploy/haproxy.cfg` and three nodes.
    #[test]
    fn files_are_where_haproxy_puts_them() {
        let ring = Ring::new(3);
        let first: String = (0..60).map(|i| ring.node(&format!("/sd/{i:06}.mp4")).to_string()).collect();
        assert_eq!(first, HAPROXY);
        let count = |node| (0..300).filter(|i| ring.node(&format!("/sd/{i:06}.mp4")) == node).count();
        assert_eq!([1, 2, 3].map(count), [111, 82, 107]);
    }

    const HAPROXY: &str = "113123323111233113111221133113232312313123323213113211123312";

    #[test]
    fn a_node_lost_moves_its_own_files_alone() {
        let (two, three) = (Ring::new(2), Ring::new(3));
        for i in 0..500 {
            let path = format!("/hd/{i:06}.mp4");
            assert!(three.node(&path) == 3 || three.node(&path) == two.node(&path), "{path}");
            assert_eq!(Ring::new(1).node(&path), 1);
            let (own, other) = (three.node(&path), three.node_with_room(&path, |node| node != 3));
            assert!(if own == 3 { other < 3 } else { other == own }, "{path}");
            assert_eq!(three.node_with_room(&path, |_| false), own, "with no room anywhere");
        }
    }
}
