//! The lists of hosts that settings allow.

use super::host::HostName;
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::LazyLock,
};

/// The hosts of each preset, as data. A preset allows whatever its hosts offer: it is no list of methods, because the proxy does not look into TLS.
static PRESETS: LazyLock<BTreeMap<String, Vec<String>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("presets.json")).unwrap_or_default());
/// What stands before the name of a preset.
const PRESET: &str = "preset:";
/// Entries of one list. Beyond it: `settings_invalid`, `config_invalid` or `egress_list_invalid`.
pub const EGRESS_ENTRIES_MAX: usize = 200;

/// A list of hosts under the name of its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    /// For people: `environment.network.allow of the project's settings`.
    pub setting: String,
    allow: Vec<Pattern>,
    /// What people may allow in addition.
    ask: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Host(HostName),
    /// `*.acme.dev`: every name below it, but not itself.
    Below(HostName),
}

/// The lists of all levels. Each must allow a host, so a lower level only narrows; no list allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowLists(Vec<AllowList>);

/// Why the lists do not allow a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRefusal<'a> {
    /// There is no list.
    NoList,
    /// This setting does not list it.
    NotListed(&'a str),
    /// People may allow it.
    NeedsPermission,
}

/// Why a list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowListError {
    /// An entry is nothing known.
    #[error("{setting}: {entry:?} is not {}", expected())]
    Entry { setting: String, entry: String },
    #[error("{0} has more than {EGRESS_ENTRIES_MAX} entries")]
    TooMany(String),
}

/// What an entry can be, for people.
pub fn expected() -> String {
    let presets: Vec<String> = presets().keys().map(|name| format!("{PRESET}{name}")).collect();
    format!("a host, *. and a host, or a preset ({})", presets.join(", "))
}

/// Whether a list can have this entry.
pub fn is_entry(entry: &str) -> bool {
    patterns(entry).is_some()
}

fn presets() -> &'static BTreeMap<String, Vec<String>> {
    &PRESETS
}

/// What an entry allows; `None`: it is nothing known.
fn patterns(entry: &str) -> Option<Vec<Pattern>> {
    match entry.strip_prefix(PRESET) {
        Some(preset) => presets().get(preset)?.iter().map(|host| Pattern::parse(host)).collect(),
        None => Pattern::parse(entry).map(|pattern| vec![pattern]),
    }
}

impl AllowList {
    /// The list of a setting that allows no host.
    pub fn nothing(setting: &str) -> Self {
        Self { setting: setting.to_owned(), allow: vec![], ask: vec![] }
    }

    /// Reads the entries of a setting, and those that people may allow in addition.
    ///
    /// # Errors
    /// By the first wrong entry.
    pub fn parse(setting: &str, allow: &[String], ask: &[String]) -> Result<Self, AllowListError> {
        let read = |entries: &[String]| {
            if entries.len() > EGRESS_ENTRIES_MAX {
                return Err(AllowListError::TooMany(setting.to_owned()));
            }
            let mut read = vec![];
            for entry in entries {
                let unknown = || AllowListError::Entry {
                    setting: setting.to_owned(),
                    entry: entry.chars().take(100).collect(),
                };
                read.extend(patterns(entry).ok_or_else(unknown)?);
            }
            Ok(read)
        };
        Ok(Self { setting: setting.to_owned(), allow: read(allow)?, ask: read(ask)? })
    }
}

impl Pattern {
    fn parse(entry: &str) -> Option<Self> {
        match entry.strip_prefix("*.") {
            Some(parent) => HostName::parse(parent).ok().map(Self::Below),
            None => HostName::parse(entry).ok().map(Self::Host),
        }
    }

    fn fits(&self, host: &HostName) -> bool {
        match self {
            Self::Host(own) => host == own,
            Self::Below(parent) => host.is_below(parent),
        }
    }

    /// Whether it fits every host that `other` fits.
    fn covers(&self, other: &Self) -> bool {
        match other {
            Self::Host(host) => self.fits(host),
            Self::Below(parent) => self == other || self.fits(parent),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "{host}"),
            Self::Below(parent) => write!(f, "*.{parent}"),
        }
    }
}

/// The hosts of all lists together, as people write them: a host, or `*.` and a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedHosts {
    /// Those that every list allows.
    pub allowed: Vec<String>,
    /// Those that people may allow in addition.
    pub askable: Vec<String>,
}

impl AllowLists {
    /// Puts the lists of all levels together.
    pub fn new(lists: Vec<AllowList>) -> Self {
        Self(lists)
    }

    /// Returns the entries that count in all lists. Presets are their hosts.
    pub fn hosts(&self) -> ListedHosts {
        let mut hosts = ListedHosts::default();
        let mut seen = HashSet::new();
        let covers = |patterns: &[Pattern], entry: &Pattern| patterns.iter().any(|it| it.covers(entry));
        for entry in self.0.iter().flat_map(|list| list.allow.iter().chain(&list.ask)) {
            let name = entry.to_string();
            if !seen.insert(name.clone()) {
                continue;
            }
            if self.0.iter().all(|list| covers(&list.allow, entry)) {
                hosts.allowed.push(name);
            } else if self.0.iter().all(|list| covers(&list.allow, entry) || covers(&list.ask, entry)) {
                hosts.askable.push(name);
            }
        }
        hosts
    }

    /// Whether every list allows a host.
    ///
    /// # Errors
    /// The reason why not; a list that refuses the host counts before the question for people.
    pub fn check(&self, host: &HostName) -> Result<(), HostRefusal<'_>> {
        if self.0.is_empty() {
            return Err(HostRefusal::NoList);
        }
        let lists = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.fits(host));
        let mut needs_permission = false;
        for list in self.0.iter().filter(|list| !lists(&list.allow)) {
            if !lists(&list.ask) {
                return Err(HostRefusal::NotListed(&list.setting));
            }
            needs_permission = true;
        }
        if needs_permission { Err(HostRefusal::NeedsPermission) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn list(setting: &str, entries: &[&str]) -> AllowList {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        AllowList::parse(setting, &entries, &[]).unwrap()
    }

    fn asking(setting: &str, allow: &[&str], ask: &[&str]) -> AllowList {
        let AllowList { allow: ask, .. } = list(setting, ask);
        AllowList { ask, ..list(setting, allow) }
    }

    #[test]
    fn every_level_must_allow_a_host() {
        let host = |name| HostName::parse(name).unwrap();
        let above = list("project", &["preset:npm", "*.acme.dev"]);
        let below = list("repository", &["registry.npmjs.org", "a.acme.dev", "evil.com"]);
        let lists = AllowLists::new(vec![above, below]);
        for allowed in ["registry.npmjs.org", "a.acme.dev"] {
            assert_eq!(lists.check(&host(allowed)), Ok(()));
        }
        for (refused, by) in [("evil.com", "project"), ("b.acme.dev", "repository"), ("acme.dev", "project")]
        {
            assert_eq!(lists.check(&host(refused)), Err(HostRefusal::NotListed(by)));
        }
        assert_eq!(
            AllowLists::default().check(&host("pypi.org")),
            Err(HostRefusal::NoList),
            "no list allows nothing"
        );
        let nothing = AllowLists::new(vec![list("tenant", &[]), list("project", &["pypi.org"])]);
        let refused = Err(HostRefusal::NotListed("tenant"));
        assert_eq!(nothing.check(&host("pypi.org")), refused, "an empty list forbids everything");
    }

    #[test]
    fn the_hosts_of_all_levels_are_named() {
        let hosts = |lists: Vec<AllowList>| {
            let ListedHosts { allowed, askable } = AllowLists::new(lists).hosts();
            (allowed.join(" "), askable.join(" "))
        };
        let of = |allowed: &str, askable: &str| (allowed.to_owned(), askable.to_owned());
        assert_eq!(hosts(vec![]), of("", ""));
        let project = asking("project", &["pypi.org", "*.acme.dev"], &["b.org", "pypi.org"]);
        assert_eq!(hosts(vec![project.clone()]), of("pypi.org *.acme.dev", "b.org"));
        let narrower =
            asking("repository", &["a.acme.dev", "*.x.acme.dev", "evil.com"], &["b.org", "*.acme.dev"]);
        assert_eq!(hosts(vec![project, narrower]), of("a.acme.dev *.x.acme.dev", "*.acme.dev b.org"));
        assert!(hosts(vec![list("project", &["preset:pypi"])]).0.contains("files.pythonhosted.org"));
    }

    #[test]
    fn people_allow_what_every_level_lets_them() {
        let host = |name| HostName::parse(name).unwrap();
        let lists = AllowLists::new(vec![
            asking("project", &["pypi.org"], &["*.acme.dev", "preset:npm"]),
            asking("repository", &["pypi.org", "a.acme.dev"], &["b.acme.dev", "evil.com"]),
        ]);
        for (name, want) in [
            ("pypi.org", Ok(())),
            ("a.acme.dev", Err(HostRefusal::NeedsPermission)),
            ("b.acme.dev", Err(HostRefusal::NeedsPermission)),
            ("c.acme.dev", Err(HostRefusal::NotListed("repository"))),
            ("evil.com", Err(HostRefusal::NotListed("project"))),
        ] {
            assert_eq!(lists.check(&host(name)), want, "{name}");
        }
    }

    #[test]
    fn every_preset_is_a_list_of_hosts() {
        let names: Vec<&str> = presets().keys().map(String::as_str).collect();
        assert_eq!(names, ["crates", "debian", "github", "go", "maven", "npm", "pypi", "ubuntu"]);
        for name in names {
            assert!(!list("x", &[&format!("preset:{name}")]).allow.is_empty(), "{name}");
        }
        for wrong in ["preset:cobol", "*", "*.com", "http://a.b", "127.0.0.1", "a.*.b"] {
            let error = AllowList::parse("network.allow", &[wrong.to_owned()], &[]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("network.allow: {wrong:?} is not a host")), "{error}");
            assert!(!is_entry(wrong), "{wrong}");
        }
    }
}
