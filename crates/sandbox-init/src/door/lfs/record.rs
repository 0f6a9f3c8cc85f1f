//! The record of the files that are still pointers of Git LFS after a clone. It stands in the directory of git, where an agent can change it: the agent then misleads
//! only itself.

use std::collections::BTreeMap;

/// Where it is, below the work tree.
pub(crate) const RECORD: &str = ".git/flotilla-lfs";
/// How it begins, also without files.
const HEADER: &str = "1\0";
/// Files of each reason that it names. The others are only counted.
const FILES_NAMED_MAX: usize = 100;

/// Why a file is still a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The server does not have the content.
    Missing,
    /// The server does not give the content.
    Refused,
    /// The content is larger than a workspace takes, or there is too much of it.
    TooLarge,
    /// The server has no Git LFS.
    Unsupported,
    /// The server gives the content only with a credential, and the settings name none.
    Login,
    /// The server is in a network that is closed to sessions.
    Private,
    /// The repository names another server for Git LFS.
    Elsewhere,
    /// The files are copies, and the session that they are from does not have the content on this machine.
    Origin,
}

/// The files of one reason.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct PointerFiles {
    /// The first of them.
    pub(crate) paths: Vec<String>,
    pub(crate) total: usize,
}

pub(crate) type Record = BTreeMap<Reason, PointerFiles>;

impl Reason {
    const ALL: [Self; 8] = [
        Self::Missing,
        Self::Refused,
        Self::TooLarge,
        Self::Unsupported,
        Self::Login,
        Self::Private,
        Self::Elsewhere,
        Self::Origin,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::Unsupported => "unsupported",
            Self::Login => "login",
            Self::Private => "private",
            Self::Elsewhere => "elsewhere",
            Self::Origin => "origin",
        }
    }

    /// What the model reads before the names of the files.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Missing => {
                "These files are Git LFS pointers here, because the server does not have their contents"
            }
            Self::Refused => {
                "These files are Git LFS pointers here, because the server refuses to send their contents"
            }
            Self::TooLarge => {
                "These files are Git LFS pointers here, because their contents are too large for this workspace"
            }
            Self::Unsupported => {
                "These files are Git LFS pointers here, because the server of the repository has no Git LFS"
            }
            Self::Login => {
                "These files are Git LFS pointers here, because their server gives the contents only with a credential, and the settings name none"
            }
            Self::Private => {
                "These files are Git LFS pointers here, because the server of their contents is in a private network"
            }
            Self::Elsewhere => {
                "These files are Git LFS pointers here, because .lfsconfig names another server for their contents"
            }
            Self::Origin => {
                "These files are Git LFS pointers here, because the session that they were copied from does not have their contents"
            }
        }
    }
}

impl PointerFiles {
    pub(crate) fn add(&mut self, path: &str) {
        self.total += 1;
        if self.paths.len() < FILES_NAMED_MAX {
            self.paths.push(path.to_owned());
        }
    }
}

/// Writes `reason total NUL` for each reason, and behind it each path with a slash before it and a NUL.
pub(crate) fn encode(record: &Record) -> String {
    let mut text = HEADER.to_owned();
    for (reason, PointerFiles { paths, total }) in record {
        text.push_str(&format!("{} {total}\0", reason.name()));
        for path in paths {
            text.push_str(&format!("/{path}\0"));
        }
    }
    text
}

/// Reads what [`encode`] wrote. What is malformed is left out.
pub(crate) fn decode(text: &str) -> Record {
    let mut record = Record::new();
    let mut current = None;
    for field in text.split('\0') {
        if let Some(path) = field.strip_prefix('/') {
            let files = match current {
                Some(reason) => record.get_mut(&reason),
                None => None,
            };
            if let Some(files) = files.filter(|files| files.paths.len() < FILES_NAMED_MAX) {
                files.paths.push(path.to_owned());
            }
            continue;
        }
        let header = field.split_once(' ').and_then(|(name, total)| {
            let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name)?;
            Some((reason, total.parse().ok()?))
        });
        current = header.map(|(reason, total)| {
            record.insert(reason, PointerFiles { paths: vec![], total });
            reason
        });
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record::new();
        for number in 0..150 {
            record.entry(Reason::TooLarge).or_default().add(&format!("{number} a\nb"));
        }
        record.entry(Reason::Missing).or_default().add("x/y");
        let read = decode(&encode(&record));
        assert_eq!(read, record);
        let files = &read[&Reason::TooLarge];
        assert_eq!((files.paths.len(), files.total), (100, 150));
        assert_eq!(decode("/x\0nonsense\0what 1\0/y\0missing x\0/z\0"), Record::new());
    }
}
