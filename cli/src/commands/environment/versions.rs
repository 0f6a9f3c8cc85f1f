//! The versions of its languages that a repository wants, in the files where tools look for them.

use crate::input;
use serde_json::Value;
use std::path::Path;

/// Bytes of a file that is read. A larger one is none that people write.
const FILE_BYTES_MAX: usize = 1 << 20;

/// A version: `3.12`, or `22` for the newest of a major one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    /// `u32::MAX`: the newest.
    pub(super) minor: u32,
}

/// What a file wants of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedVersion {
    /// The file, and what it says.
    pub(super) file: &'static str,
    pub(super) text: String,
    at_least: Option<Version>,
    below: Option<Version>,
}

impl Version {
    /// Reads `3.12.1`, `v22`, `1.x`: two parts count. `None`: it is no number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches(['v', 'V']).split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next().and_then(|part| part.parse().ok()).unwrap_or(u32::MAX);
        Some(Self { major, minor })
    }

    fn lowest(self) -> Self {
        Self { minor: if self.minor == u32::MAX { 0 } else { self.minor }, ..self }
    }

    /// The first version behind all that begin so.
    fn next(self) -> Self {
        match self.minor {
            u32::MAX => Self { major: self.major + 1, minor: 0 },
            minor => Self { minor: minor + 1, ..self },
        }
    }

    fn next_major(self) -> Self {
        Self { major: self.major + 1, minor: 0 }
    }

    /// The version with so many parts.
    pub(super) fn shown(self, parts: u8) -> String {
        if parts < 2 || self.minor == u32::MAX {
            self.major.to_string()
        } else {
            format!("{}.{}", self.major, self.minor)
        }
    }
}

impl WantedVersion {
    /// Reads the range of a file: `22`, `^3.10`, `>=18 <23`, `>=3.9,<4`, `18 || 20`. `None`: it names no version.
    fn parse(file: &'static str, text: &str) -> Option<Self> {
        let text = text.trim();
        // The last alternative is the newest one.
        let range = text.rsplit("||").next().unwrap_or(text);
        let mut wanted = Self { file, text: text.to_owned(), at_least: None, below: None };
        let range = range.replace(", ", ",").replace(">= ", ">=").replace("< ", "<").replace("> ", ">");
        for clause in range.split([',', ' ']).filter(|clause| !clause.is_empty()) {
            let end = clause.find(|letter: char| letter.is_ascii_digit() || letter == 'v').unwrap_or(0);
            let (operator, version) = clause.split_at(end);
            let version_of = Version::parse(version)?;
            let (lowest, parts) = (version_of.lowest(), version.split('.').count());
            match operator {
                ">=" | ">" => wanted.at_least = Some(lowest),
                "<" => wanted.below = Some(lowest),
                "<=" => wanted.below = Some(version_of.next()),
                "!=" => {}
                "^" => (wanted.at_least, wanted.below) = (Some(lowest), Some(lowest.next_major())),
                "~=" if parts < 3 => {
                    (wanted.at_least, wanted.below) = (Some(lowest), Some(lowest.next_major()))
                }
                _ => (wanted.at_least, wanted.below) = (Some(lowest), Some(version_of.next())),
            }
        }
        (wanted.at_least.is_some() || wanted.below.is_some()).then_some(wanted)
    }

    /// As [`Self::parse`], for a file that says which version is the oldest that works.
    fn oldest(file: &'static str, text: &str) -> Option<Self> {
        let wanted = Self::parse(file, text)?;
        Some(Self { below: None, ..wanted })
    }

    /// Whether a version is in the range.
    pub(super) fn takes(&self, version: Version) -> bool {
        self.at_least.is_none_or(|least| version >= least) && self.below.is_none_or(|below| version < below)
    }

    /// The version to have: `newest`, if the range takes it.
    pub(super) fn choose(&self, newest: Version) -> Version {
        if self.takes(newest) {
            return newest;
        }
        let before = |below: Version| match below {
            Version { major, minor: 0 } => Version { major: major.saturating_sub(1), minor: u32::MAX },
            Version { major, minor } => Version { major, minor: minor - 1 },
        };
        match (self.at_least, self.below.map(before)) {
            (Some(least), Some(last)) => last.max(least),
            (Some(version), None) | (None, Some(version)) => version,
            (None, None) => newest,
        }
    }
}

/// Finds what the files of a repository want of a language.
pub(super) fn find(root: &Path, language: &str) -> Option<WantedVersion> {
    let line = |file: &'static str| {
        let text = read(root, file)?;
        WantedVersion::parse(file, text.lines().find(|line| !line.trim().is_empty())?)
    };
    let listed = |names: &[&str]| {
        let text = read(root, ".tool-versions")?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, version) = lines.find(|(name, _)| names.contains(name))?;
        WantedVersion::parse(".tool-versions", version.split_whitespace().next()?)
    };
    match language {
        "node" => line(".nvmrc")
            .or_else(|| line(".node-version"))
            .or_else(|| listed(&["nodejs", "node"]))
            .or_else(|| text_at(&json(root, "package.json")?, "/engines/node", "package.json")),
        "python" => line(".python-version").or_else(|| listed(&["python"])).or_else(|| {
            let project = toml(root, "pyproject.toml")?;
            text_at(&project, "/project/requires-python", "pyproject.toml")
                .or_else(|| text_at(&project, "/tool/poetry/dependencies/python", "pyproject.toml"))
        }),
        "rust" => toml(root, "rust-toolchain.toml")
            .and_then(|toolchain| text_at(&toolchain, "/toolchain/channel", "rust-toolchain.toml"))
            .or_else(|| {
                let toolchain = toml(root, "rust-toolchain")?;
                text_at(&toolchain, "/toolchain/channel", "rust-toolchain")
            })
            .or_else(|| line("rust-toolchain"))
            .or_else(|| listed(&["rust"]))
            .or_else(|| {
                let manifest = toml(root, "Cargo.toml")?;
                let keys = ["/package/rust-version", "/workspace/package/rust-version"];
                let text = keys.iter().find_map(|key| manifest.pointer(key)?.as_str())?;
                WantedVersion::oldest("Cargo.toml", text)
            }),
        "go" => {
            let text = read(root, "go.mod").unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("go "));
            line.and_then(|version| WantedVersion::oldest("go.mod", version))
                .or_else(|| listed(&["golang", "go"]))
        }
        _ => None,
    }
}

/// The channel of Rust that no number names, such as `nightly-2026-01-01`.
pub(super) fn find_channel(root: &Path) -> Option<String> {
    let of_table = |file| toml(root, file)?.pointer("/toolchain/channel")?.as_str().map(str::to_owned);
    let plain = || Some(read(root, "rust-toolchain")?.lines().next()?.trim().to_owned());
    let channel = of_table("rust-toolchain.toml").or_else(|| of_table("rust-toolchain")).or_else(plain)?;
    let is_named = ["nightly", "beta"].iter().any(|name| channel.starts_with(name));
    is_named.then_some(channel)
}

fn text_at(value: &Value, key: &str, file: &'static str) -> Option<WantedVersion> {
    WantedVersion::parse(file, value.pointer(key)?.as_str()?)
}

/// Reads a text file in the root.
pub(super) fn read(root: &Path, file: &str) -> Option<String> {
    input::read_text(&root.join(file), FILE_BYTES_MAX).ok()
}

pub(super) fn json(root: &Path, file: &str) -> Option<Value> {
    serde_json::from_str(&read(root, file)?).ok()
}

/// Reads a TOML file. `None` if there is none, or it has a mistake, about which its own tools say more.
pub(super) fn toml(root: &Path, file: &str) -> Option<Value> {
    toml::from_str(&read(root, file)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn a_range_chooses_the_newest_version_that_it_takes() {
        for (range, newest, want) in [
            ("22.12.0", "22", "22"),
            ("v20", "22", "20"),
            (">=18", "22", "22"),
            (">= 24", "22", "24"),
            (">=18 <21", "22", "20"),
            ("^18 || ^20", "22", "20"),
            ("20.x", "22", "20"),
            ("<21", "22", "20"),
        ] {
            let wanted = WantedVersion::parse("f", range).unwrap();
            assert_eq!(wanted.choose(Version::parse(newest).unwrap()).shown(1), want, "{range}");
        }
        for (range, want) in [
            (">=3.13", "3.13"),
            (">=3.8", "3.12"),
            (">=3.9,<3.12", "3.11"),
            ("^3.10", "3.12"),
            ("~=3.11", "3.12"),
            ("~=3.11.2", "3.11"),
            ("==3.10.*", "3.10"),
            ("3.13", "3.13"),
            ("<3.12", "3.11"),
            (">=3.8, !=3.9.1", "3.12"),
        ] {
            let wanted = WantedVersion::parse("f", range).unwrap();
            assert_eq!(wanted.choose(Version::parse("3.12").unwrap()).shown(2), want, "{range}");
        }
        let exact = WantedVersion::parse("f", "1.88.0").unwrap();
        assert_eq!(exact.choose(Version::parse("1").unwrap()).shown(2), "1.88");
        let oldest = WantedVersion::oldest("f", "1.70").unwrap();
        assert_eq!(oldest.choose(Version::parse("1").unwrap()).shown(2), "1");
        assert!(
            !oldest.takes(Version::parse("1.63").unwrap()) && oldest.takes(Version::parse("1.85").unwrap())
        );
        for none in ["", "lts/*", "stable", "*", "latest"] {
            assert_eq!(WantedVersion::parse("f", none), None, "{none}");
        }
    }

    #[test]
    fn each_language_has_its_files() {
        for (language, file, text, want) in [
            ("node", ".nvmrc", "v20.11\n", "v20.11"),
            ("node", ".node-version", "18", "18"),
            ("node", ".tool-versions", "python 3.11\nnodejs 21.1.0\n", "21.1.0"),
            ("node", "package.json", r#"{"engines": {"node": ">=18"}}"#, ">=18"),
            ("python", ".python-version", "3.13\n", "3.13"),
            ("python", ".tool-versions", "python 3.11.4 3.9\n", "3.11.4"),
            ("python", "pyproject.toml", "[project]\nrequires-python = '>=3.13'\n", ">=3.13"),
            ("python", "pyproject.toml", "[tool.poetry.dependencies]\npython = '^3.9'\n", "^3.9"),
            ("rust", "rust-toolchain.toml", "[toolchain]\nchannel = '1.88'\n", "1.88"),
            ("rust", "rust-toolchain", "1.80.1\n", "1.80.1"),
            ("rust", "Cargo.toml", "[workspace.package]\nrust-version = '1.85'\n", "1.85"),
            ("go", "go.mod", "module a\n\ngo 1.22\n", "1.22"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(file), text).unwrap();
            let found = find(directory.path(), language).unwrap();
            assert_eq!((found.file, found.text.as_str()), (file, want), "{language}");
        }
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(find(directory.path(), "node"), None);
        fs::write(directory.path().join("rust-toolchain"), "nightly-2026-01-01\n").unwrap();
        assert_eq!(find_channel(directory.path()).unwrap(), "nightly-2026-01-01");
        assert_eq!(find(directory.path(), "rust"), None);
    }
}
