//! Names of hosts in the one spelling that is compared, looked up and dialled.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Characters of a name.
const NAME_CHARS_MAX: usize = 253;
/// Characters between two dots.
const LABEL_CHARS_MAX: usize = 63;

/// A name of the internet in lower case, with at least two labels: never an address in any spelling, and never a name that only this machine
/// or its network knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The address that an operator gives to a host: `git.acme.dev=10.1.2.3:443`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedHost {
    pub host: HostName,
    pub address: SocketAddr,
}

/// Why a text is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host name: {reason}")]
pub struct HostNameError {
    text: String,
    reason: &'static str,
}

impl HostName {
    /// Reads a name. Upper case and one trailing dot are other spellings of the same name.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, HostNameError> {
        match reason_against(text) {
            None => Ok(Self(text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase())),
            Some(reason) => {
                // An attacker chose it.
                let text = text.chars().take(NAME_CHARS_MAX).collect();
                Err(HostNameError { text, reason })
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a name below `parent`, and not the parent itself.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the host of a URL is the machine itself: `localhost`, or a loopback address, that of IPv6 with or without its brackets.
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn reason_against(text: &str) -> Option<&'static str> {
    if !text.is_ascii() {
        return Some("write international names as xn--…");
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > NAME_CHARS_MAX {
        return Some("it is empty or too long");
    }
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        (1..=LABEL_CHARS_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !labels.iter().all(is_label) {
        return Some("only letters, digits, hyphens and dots are possible");
    }
    let last = labels.last().copied().unwrap_or_default();
    // 127.1, 2130706433, 0x7f.1 and the like: a system resolves them as addresses.
    if last.bytes().all(|byte| byte.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x") {
        return Some("addresses are not possible");
    }
    if labels.len() < 2 { Some("it has only one label") } else { None }
}

impl FromStr for FixedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, address) = text.split_once('=').ok_or("expected HOST=ADDRESS:PORT")?;
        let host = HostName::parse(host).map_err(|error| error.to_string())?;
        let address = address.parse().map_err(|_| format!("{address:?} is not an IP address and a port"))?;
        Ok(Self { host, address })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_machine_is_itself_at_localhost_and_at_every_loopback_address() {
        for host in ["localhost", "127.0.0.1", "127.0.0.2", "::1", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "localhost.example", "127.0.0.1.example", "10.0.0.1", "0.0.0.0", "[::2]"] {
            assert!(!is_this_machine(host), "{host:?}");
        }
    }

    #[test]
    fn names_have_one_spelling() {
        for text in ["registry.npmjs.org", "Registry.NPMJS.org", "registry.npmjs.org."] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), "registry.npmjs.org");
        }
        for text in [
            "",
            ".",
            "localhost",
            "registry",
            "a..b",
            ".a.b",
            "a.b..",
            "127.0.0.1",
            "127.1",
            "1.2.3.4.",
            "0x7f.0.0.1",
            "a.0x7f",
            "2130706433",
            "[::1]",
            "::1",
            "a@b.c",
            "a.b:80",
            "a b.c",
            "a\0.b",
            "ä.de",
            "-a.b",
            "a-.b",
            "a_b.c",
            "%6c.b",
            "a.b/c",
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
        assert!(HostName::parse(&format!("{}.b", "a".repeat(64))).is_err());
        assert!(HostName::parse(&format!("{}b", "a.".repeat(127))).is_err());
    }

    #[test]
    fn a_wildcard_is_below_its_parent_only() {
        let name = |text| HostName::parse(text).unwrap();
        assert!(
            name("a.acme.dev").is_below(&name("acme.dev"))
                && name("a.b.acme.dev").is_below(&name("acme.dev"))
        );
        for other in ["acme.dev", "evilacme.dev", "acme.dev.evil.com"] {
            assert!(!name(other).is_below(&name("acme.dev")), "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_a_name_is_no_address(text in "[0-9a-fx.:]{1,20}") {
            if let Ok(name) = HostName::parse(&text) {
                prop_assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
                prop_assert_eq!(HostName::parse(name.as_str()).unwrap(), name);
            }
        }
    }

    #[test]
    fn a_fixed_host_has_a_name_and_an_address_with_a_port() {
        let fixed: FixedHost = "Git.acme.dev=10.1.2.3:443".parse().unwrap();
        assert_eq!((fixed.host.as_str(), fixed.address), ("git.acme.dev", "10.1.2.3:443".parse().unwrap()));
        for wrong in ["git.acme.dev", "git.acme.dev=10.1.2.3", "localhost=127.0.0.1:443", "=10.1.2.3:443"] {
            assert!(wrong.parse::<FixedHost>().is_err(), "{wrong}");
        }
    }
}
