//! The lists of hosts that settings allow.

use super::host::HostName;
use std::{collections::BTreeMap, sync::LazyLock};

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
    patterns: Vec<Pattern>,
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

/// Why a list is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowListError {
    /// An entry is nothing known.
    #[error("{setting}: {entry:?} is not {}", expected())]
    Entry {
        /// The setting.
        setting: String,
        /// The entry.
        entry: String,
    },
    /// Too many entries.
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
    /// Reads the entries of a setting.
    ///
    /// # Errors
    /// By the first wrong entry.
    pub fn parse(setting: &str, entries: &[String]) -> Result<Self, AllowListError> {
        if entries.len() > EGRESS_ENTRIES_MAX {
            return Err(AllowListError::TooMany(setting.to_owned()));
        }
        let mut list = Self { setting: setting.to_owned(), patterns: vec![] };
        for entry in entries {
            let unknown = || AllowListError::Entry {
                setting: setting.to_owned(),
                entry: entry.chars().take(100).collect(),
            };
            list.patterns.extend(patterns(entry).ok_or_else(unknown)?);
        }
        Ok(list)
    }

    fn allows(&self, host: &HostName) -> bool {
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Host(allowed) => host == allowed,
            Pattern::Below(parent) => host.is_below(parent),
        })
    }
}

impl Pattern {
    fn parse(entry: &str) -> Option<Self> {
        match entry.strip_prefix("*.") {
            Some(parent) => HostName::parse(parent).ok().map(Self::Below),
            None => HostName::parse(entry).ok().map(Self::Host),
        }
    }
}

impl AllowLists {
    /// Puts the lists of all levels together.
    pub fn new(lists: Vec<AllowList>) -> Self {
        Self(lists)
    }

    /// Whether every list allows a host.
    ///
    /// # Errors
    /// The first setting that does not list it; `None`: there is no list.
    pub fn check(&self, host: &HostName) -> Result<(), Option<&str>> {
        if self.0.is_empty() {
            return Err(None);
        }
        self.0.iter().find(|list| !list.allows(host)).map_or(Ok(()), |list| Err(Some(list.setting.as_str())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    fn list(setting: &str, entries: &[&str]) -> AllowList {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        AllowList::parse(setting, &entries).unwrap()
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
            assert_eq!(lists.check(&host(refused)), Err(Some(by)));
        }
        assert_eq!(AllowLists::default().check(&host("pypi.org")), Err(None), "no list allows nothing");
        let nothing = AllowLists::new(vec![list("tenant", &[]), list("project", &["pypi.org"])]);
        assert_eq!(nothing.check(&host("pypi.org")), Err(Some("tenant")), "an empty list forbids everything");
    }

    #[test]
    fn every_preset_is_a_list_of_hosts() {
        let names: Vec<&str> = presets().keys().map(String::as_str).collect();
        assert_eq!(names, ["crates", "debian", "github", "go", "maven", "npm", "pypi", "ubuntu"]);
        for name in names {
            assert!(!list("x", &[&format!("preset:{name}")]).patterns.is_empty(), "{name}");
        }
        for wrong in ["preset:cobol", "*", "*.com", "http://a.b", "127.0.0.1", "a.*.b"] {
            let error = AllowList::parse("network.allow", &[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("network.allow: {wrong:?} is not a host")), "{error}");
            assert!(!is_entry(wrong), "{wrong}");
        }
    }
}
