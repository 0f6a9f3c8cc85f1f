//! Who wrote the files that a workspace starts from. The install of a team runs files with secrets, and what it leaves goes into other sessions, so it needs the
//! proof that no agent wrote them. Only this file makes that proof.

use super::{Origin, Source};

/// The files that a workspace starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFiles<'a> {
    Nothing,
    /// Those of a repository or an upload, which a person chose.
    People(PeoplesFiles),
    /// A copy of those of a session, in which its agent may have written and committed anything.
    Agents(AgentsFiles<'a>),
}

/// The proof that no agent wrote the files of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeoplesFiles(());

/// Files that an agent may have written. No script with secrets runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentsFiles<'a> {
    /// The key of what is installed where they were copied from; `None`: nothing that is known.
    pub install: Option<&'a str>,
}

impl Source {
    /// The files that a workspace starts from. All that a session has made counts as its agent's: also its commits, and those of the session that it is a copy of.
    pub fn files(&self) -> SourceFiles<'_> {
        match &self.origin {
            // Only a copy is uncommitted. Earlier versions noted nothing else of it.
            Origin::Bundle(_) if self.uncommitted || self.lfs.is_some() => {
                SourceFiles::Agents(AgentsFiles { install: self.install.as_deref() })
            }
            Origin::GitUrl(_) | Origin::Bundle(_) => SourceFiles::People(PeoplesFiles(())),
            Origin::Empty => SourceFiles::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::session::FilesCopy;
    use serde_json::json;

    #[test]
    fn a_copy_and_each_copy_of_it_is_of_agents() {
        let session = "ses_1".parse().unwrap();
        let install = Some("a".repeat(64));
        let copy = FilesCopy { bundle: "b".to_owned(), commit: "c".to_owned(), install: install.clone() };
        let agents = SourceFiles::Agents(AgentsFiles { install: install.as_deref() });
        for origin in
            [Origin::GitUrl("https://h.org/a.git".to_owned()), Origin::Bundle("b1".to_owned()), Origin::Empty]
        {
            let source = Source { origin, ..Source::default() };
            assert!(!matches!(source.files(), SourceFiles::Agents(_)), "{source:?}");
            let copied = source.copied(&session, copy.clone());
            assert_eq!(copied.files(), agents);
            assert_eq!(copied.copied(&session, copy.clone()).files(), agents);
        }
        // A copy that an earlier version made.
        let stored = json!({"from": "bundle", "id": "b1", "revision": "c1", "uncommitted": true});
        let old: Source = serde_json::from_value(stored).unwrap();
        assert_eq!(old.files(), SourceFiles::Agents(AgentsFiles { install: None }));
    }
}
