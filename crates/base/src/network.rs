use core::net::IpAddr;

/// The peer that a connection counts for: an IPv4 address, or the /64 that a customer with IPv6 gets.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}
