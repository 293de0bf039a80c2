//! To which user a connection belongs, and what it may request besides reads.
//!
//! The shares of a user are counted by an account number. For a process of this machine's own users, that is
//! its user id. Root and the daemon's own user have no bounds and may tell the daemon to hand over or to pass
//! every call. So a user id that looks like theirs is not enough, because root of a container has it too. A
//! trusted process connects through the path, belongs to the daemon's user namespace, and either sees the
//! daemon's mounts or has all of the daemon's capabilities, with which it could do the same in other ways
//! (`ptrace`). Every other process with such an id is counted by its mounts, so that two containers are two
//! users. The processes of a user namespace that a user has made count as that user's, whatever their ids.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::BorrowedFd;

use seekless_kernel::fdpass::Peer;
use seekless_kernel::peer::{self, Standing};

/// User ids from here on may belong to a user namespace (`/etc/subuid` begins at 100,000). Those below are
/// accounts of the machine and are not looked up.
const MAYBE_SUBORDINATE: u32 = 65_536;

/// First account number of processes that are not users of this machine.
const OTHERS: u32 = 1 << 31;

/// The account number of a connection. `None`: it may not connect here.
///
/// `at_path`: whether it came through the socket's path, which a process must be able to reach.
pub(crate) fn account(socket: BorrowedFd<'_>, peer: Peer, at_path: bool) -> Option<u32> {
    let is_own = peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw();
    let unquestioned = at_path && !is_own && peer.uid < MAYBE_SUBORDINATE;
    if unquestioned {
        return Some(peer.uid);
    }
    decide(peer.uid, is_own, at_path, peer::standing(socket, peer))
}

fn decide(uid: u32, is_own: bool, at_path: bool, standing: Option<Standing>) -> Option<u32> {
    match standing {
        // It cannot be examined: it is in another process namespace, or gone.
        None if at_path => Some(if is_own { other(&(uid, "unseen")) } else { uid }),
        None => None,
        // A container with its own users may connect only through the path.
        Some(standing) if !standing.same_users => at_path.then(|| match standing.owner {
            Some(owner) if owner != 0 => owner,
            _ => other(&(uid, "namespace")),
        }),
        Some(_) if !is_own => Some(uid),
        Some(standing) if at_path && (standing.same_mounts || standing.as_capable) => Some(uid),
        Some(standing) if standing.same_mounts => Some(other(&(uid, "twin"))),
        Some(standing) => Some(other(&(uid, standing.mounts))),
    }
}

fn other(of: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() as u32 | OTHERS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIKE_US: Standing =
        Standing { same_users: true, same_mounts: true, as_capable: true, mounts: 7, owner: None };

    #[test]
    fn only_root_of_this_machine_that_has_the_path_is_root() {
        assert_eq!(decide(0, true, true, Some(LIKE_US)), Some(0));
        let unit = Standing { same_mounts: false, mounts: 9, ..LIKE_US };
        assert_eq!(decide(0, true, true, Some(unit)), Some(0), "a service has mounts of its own");
        let container = Standing { as_capable: false, ..unit };
        let of_container = decide(0, true, true, Some(container)).unwrap();
        assert!(of_container >= OTHERS);
        assert_eq!(decide(0, true, false, Some(container)), Some(of_container), "at the twin too");
        let another = Standing { mounts: 10, ..container };
        assert_ne!(decide(0, true, true, Some(another)), Some(of_container), "another user");
        for at_twin in [LIKE_US, unit] {
            assert!(decide(0, true, false, Some(at_twin)).is_some_and(|number| number >= OTHERS));
        }
        assert!(decide(0, true, true, None).is_some_and(|number| number >= OTHERS));
    }

    #[test]
    fn users_of_a_namespace_are_counted_for_who_made_it_and_have_no_twin() {
        let inside = Standing { same_users: false, same_mounts: false, ..LIKE_US };
        let made_by = |owner| Some(Standing { owner, ..inside });
        for uid in [100_000, 100_033] {
            assert_eq!(decide(uid, false, true, made_by(Some(1000))), Some(1000));
            assert_eq!(decide(uid, false, false, made_by(Some(1000))), None);
        }
        let numbers = [100_000, 165_536].map(|uid| decide(uid, false, true, made_by(Some(0))).unwrap());
        assert!(numbers[0] != numbers[1] && numbers.iter().all(|&n| n >= OTHERS), "two of root's containers");
        assert_eq!(
            decide(0, true, true, made_by(Some(0))).filter(|&n| n < OTHERS),
            None,
            "root of its own alone"
        );
        assert_eq!(decide(33, false, false, Some(LIKE_US)), Some(33), "a server in a chroot");
    }
}
