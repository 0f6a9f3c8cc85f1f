//! The lists of hosts that settings allow.

use super::{host::HostName, refusal::Refusal};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The hosts of each preset, as data.
const PRESETS: &str = include_str!("presets.toml");
/// What stands before the name of a preset.
const PRESET: &str = "preset:";
/// Entries of one list. Beyond it: `egress_list_invalid`.
pub const ENTRIES_MAX: usize = 200;

/// A list of hosts under the name of its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    /// For people: `network.allow of .flotilla/config.yaml`.
    pub setting: String,
    entries: Vec<Pattern>,
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
    #[error("{setting}: {entry:?} is neither a host, nor *. and a host, nor a preset ({presets})")]
    Entry {
        /// The setting.
        setting: String,
        /// The entry.
        entry: String,
        /// The names of the presets.
        presets: String,
    },
    /// Too many entries.
    #[error("{0} has more than {ENTRIES_MAX} entries")]
    TooMany(String),
}

#[derive(Debug, Deserialize)]
struct Preset {
    hosts: Vec<String>,
}

impl AllowListError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        "egress_list_invalid"
    }
}

/// The presets by name, with their hosts.
///
/// # Errors
/// If the data of this program are wrong, which a test excludes.
pub fn presets() -> Result<BTreeMap<String, Vec<String>>, toml::de::Error> {
    let presets: BTreeMap<String, Preset> = toml::from_str(PRESETS)?;
    Ok(presets.into_iter().map(|(name, preset)| (name, preset.hosts)).collect())
}

impl AllowList {
    /// Reads the entries of a setting.
    ///
    /// # Errors
    /// By the first wrong entry.
    pub fn parse(setting: &str, entries: &[String]) -> Result<Self, AllowListError> {
        if entries.len() > ENTRIES_MAX {
            return Err(AllowListError::TooMany(setting.to_owned()));
        }
        let presets = presets().unwrap_or_default();
        let mut list = Self { setting: setting.to_owned(), entries: vec![] };
        for entry in entries {
            let known = match entry.strip_prefix(PRESET) {
                Some(preset) => presets.get(preset).and_then(|hosts| {
                    hosts.iter().map(|host| Pattern::parse(host)).collect::<Option<Vec<_>>>()
                }),
                None => Pattern::parse(entry).map(|pattern| vec![pattern]),
            };
            let unknown = || AllowListError::Entry {
                setting: setting.to_owned(),
                entry: entry.chars().take(100).collect(),
                presets: presets.keys().map(|name| format!("{PRESET}{name}")).collect::<Vec<_>>().join(", "),
            };
            list.entries.extend(known.ok_or_else(unknown)?);
        }
        Ok(list)
    }

    fn allows(&self, host: &HostName) -> bool {
        self.entries.iter().any(|entry| match entry {
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

    /// Checks a host.
    ///
    /// # Errors
    /// `NotAllowed`, with the first setting that does not list it.
    pub(super) fn check(&self, host: &HostName) -> Result<(), Refusal> {
        let refusal = |setting: &str| Refusal::NotAllowed { host: host.clone(), setting: setting.to_owned() };
        if self.0.is_empty() {
            return Err(refusal("network.allow"));
        }
        match self.0.iter().find(|list| !list.allows(host)) {
            None => Ok(()),
            Some(list) => Err(refusal(&list.setting)),
        }
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
            let refusal = lists.check(&host(refused)).unwrap_err();
            assert_eq!(refusal, Refusal::NotAllowed { host: host(refused), setting: by.to_owned() });
        }
        assert!(AllowLists::default().check(&host("pypi.org")).is_err(), "no list allows nothing");
    }

    #[test]
    fn every_preset_is_a_list_of_hosts() {
        let presets = presets().unwrap();
        let names: Vec<&str> = presets.keys().map(String::as_str).collect();
        assert_eq!(names, ["crates", "debian", "github", "go", "maven", "npm", "pypi", "ubuntu"]);
        for name in names {
            assert!(!list("x", &[&format!("preset:{name}")]).entries.is_empty(), "{name}");
        }
        for wrong in ["preset:cobol", "*", "*.com", "http://a.b", "127.0.0.1", "a.*.b"] {
            let error = AllowList::parse("network.allow", &[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("network.allow: {wrong:?} is neither")), "{error}");
        }
    }
}
