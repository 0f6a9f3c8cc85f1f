//! What of a work tree is not in its checked-out commit.

use super::git::Git;
use anyhow::Result;
use std::path::PathBuf;

/// The changes of a work tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WorkTree {
    /// Files that were changed, added or removed, and are not ignored; a new directory counts once.
    pub(crate) changed: usize,
    /// Repositories inside that are no submodules.
    pub(crate) nested: Vec<PathBuf>,
    /// Submodules with changes of their own.
    pub(crate) submodules: Vec<String>,
}

/// Reads the state of the work tree. Blocks.
///
/// # Errors
/// Git's own message.
pub(super) fn read(git: &Git) -> Result<WorkTree> {
    let words = ["status", "--porcelain=v2", "-z", "--untracked-files=normal", "--ignore-submodules=none"];
    let mut tree = parse(&git.run_with(&words, b"")?);
    // A new directory may be a repository, or have some.
    let words = ["ls-files", "-z", "--others", "--exclude-standard"];
    let others = git.run_with(&words, b"")?;
    let others = others.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    tree.nested =
        others.filter(|path| path.ends_with('/')).map(|path| PathBuf::from(path.as_ref())).collect();
    Ok(tree)
}

/// Parses records of git's second format, each with a NUL. A renamed file has its former name in a record of its own.
fn parse(records: &[u8]) -> WorkTree {
    let mut tree = WorkTree::default();
    let mut records = records.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    while let Some(record) = records.next() {
        let mut fields = record.splitn(9, ' ');
        let kind = fields.next().unwrap_or_default();
        match kind {
            "2" => drop(records.next()),
            "1" | "u" | "?" => {}
            _ => continue,
        }
        tree.changed += 1;
        // `S.M.` and the like: a submodule with changes (M) or new files (U) inside.
        let submodule = fields.nth(1).unwrap_or_default();
        if kind == "1" && submodule.starts_with('S') && submodule.contains(['M', 'U']) {
            tree.submodules.extend(fields.nth(5).map(ToOwned::to_owned));
        }
    }
    tree
}

impl WorkTree {
    /// Sentences about what stays behind.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = vec![];
        match self.changed {
            0 => {}
            1 => notes.push("1 uncommitted file stays here; --dirty sends it".to_owned()),
            count => notes.push(format!("{count} uncommitted files stay here; --dirty sends them")),
        }
        if !self.nested.is_empty() && self.changed == 0 {
            let names: Vec<String> = self.nested.iter().map(|path| path.display().to_string()).collect();
            notes.push(format!("repositories inside of this one stay here: {}", names.join(", ")));
        }
        if !self.submodules.is_empty() {
            notes.push(format!("changes inside of submodules stay here: {}", self.submodules.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn each_record_is_one_change() {
        let records = b"1 .M N... 100644 100644 100644 a a a b.txt\x002 R. N... 100644 100644 100644 a a R100 new\x00old\x00? x y\x00\
                        1 .M S.M. 160000 160000 160000 a a lib/one\x00u UU N... 1 1 1 1 a a a c\x00";
        let tree = parse(records);
        assert_eq!(tree, WorkTree { changed: 5, nested: vec![], submodules: vec!["lib/one".to_owned()] });
        assert_eq!(
            tree.notes(),
            [
                "5 uncommitted files stay here; --dirty sends them",
                "changes inside of submodules stay here: lib/one"
            ]
        );
        let nested = WorkTree { nested: vec!["inner/".into()], ..WorkTree::default() };
        assert_eq!(nested.notes(), ["repositories inside of this one stay here: inner/"]);
        assert!(parse(b"").notes().is_empty());
    }
}
