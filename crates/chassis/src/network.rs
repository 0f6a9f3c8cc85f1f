//! Addresses of networks, and which of them are on the public internet.

pub mod proxy_address;
pub mod proxy_exception;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses: `10.1.2.0/24`.
pub type Network = ipnet::IpNet;

/// Whether an address belongs to the public internet, and not to a host, a private network, a cloud's own services or
/// an unassigned range.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(address) => is_public_v4(address),
            // Global unicast is 2000::/3, without documentation ranges, 6to4 with private addresses and the like.
            None => {
                let segments = address.segments();
                segments[0] & 0xe000 == 0x2000
                    && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
                    && segments[0] != 0x3fff
            }
        },
    }
}

/// The IPv4 address inside an IPv6 address: mapped, translated (64:ff9b::/96) or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b),
        // The hosts of a cloud provider answer there, without a login.
        168 => address == Ipv4Addr::new(168, 63, 129, 16),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || b == 0 && (c == 0 || c == 2) || b == 88 && c == 99,
        198 => b == 18 || b == 19 || b == 51 && c == 100,
        203 => b == 0 && c == 113,
        224.. => true,
        _ => false,
    };
    !is_special
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
