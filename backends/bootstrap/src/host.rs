//! Identity of a node, to find out which ranks share one, and addresses of its interfaces.

use std::fs;
use std::net::IpAddr;

/// Returns a text that identifies this node: its running kernel and its network namespace.
///
/// Messages between two ranks with the same text cross no network. The text is empty if the system
/// does not provide the identity.
#[must_use]
pub fn node() -> String {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let network = fs::read_link("/proc/self/ns/net");
    match (boot_id, network) {
        (Ok(boot_id), Ok(network)) => format!("{} {}", boot_id.trim(), network.display()),
        _ => String::new(),
    }
}

/// Returns the first address of an interface, IPv4 before IPv6, without IPv6 link-local addresses.
#[cfg(unix)]
#[must_use]
pub fn address_of(interface: &str) -> Option<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().ok()?;
    let mut found: Vec<IpAddr> = all
        .filter(|each| each.interface_name == interface)
        .filter_map(|each| {
            let address = each.address?;
            let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|socket| IpAddr::V6(socket.ip())))
        })
        .filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.first().copied()
}

/// Finds no interface on this system.
#[cfg(not(unix))]
#[must_use]
pub fn address_of(_: &str) -> Option<IpAddr> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_itself_and_has_one_line() {
        assert_eq!(node(), node());
        assert!(!node().contains('\n'));
    }
}
