//! The files that a push changes, for a person who looks at them before it goes out. The inspection refuses what no push may bring; this only shows the rest.

use super::change::shown;
use crate::push::{
    error::PushError, git::Input, objects::missing, repository::Repository, request::ObjectId,
};
use domain::egress::push::PUSH_LISTED_FILES_MAX;
use std::collections::{BTreeSet, HashMap};

/// Characters of a path that a person reads. The rest is cut.
const PATH_CHARS_MAX: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangedFile {
    /// Nothing in it changes a terminal.
    pub(crate) path: String,
    /// Lines; 0 for a file that is no text.
    pub(crate) additions: u64,
    pub(crate) deletions: u64,
    pub(crate) is_binary: bool,
    /// Whether the branch has no such file.
    pub(crate) is_new: bool,
    /// Its length afterwards; 0 for one that is removed.
    pub(crate) bytes: u64,
}

/// Lists the files that differ between two commits, in the order of their paths; at most [`PUSH_LISTED_FILES_MAX`].
///
/// # Errors
/// `ContentInvalid`, `TooLarge`, `Failed`.
pub(in crate::push) async fn list(
    repository: Repository<'_>,
    old: &ObjectId,
    new: &ObjectId,
) -> Result<Vec<ChangedFile>, PushError> {
    let arguments = [
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--numstat",
        "--no-renames",
        "--no-abbrev",
        old.as_str(),
        new.as_str(),
    ];
    let output = repository.check(&arguments, Input::Nothing).await?;
    let differences = parse(&output).ok_or_else(missing)?;
    let stored: BTreeSet<&ObjectId> = differences.iter().filter_map(|it| it.object.as_ref()).collect();
    let list: String = stored.iter().map(|object| format!("{object}\n")).collect();
    let arguments = ["cat-file", "--batch-check=%(objectname) %(objectsize)"];
    let sizes = if list.is_empty() {
        HashMap::new()
    } else {
        parse_sizes(&repository.check(&arguments, Input::Bytes(list.as_bytes())).await?)
    };
    let file = |difference: Difference| {
        let bytes = difference.object.as_ref().and_then(|object| sizes.get(object.as_str()).copied());
        ChangedFile { bytes: bytes.unwrap_or_default(), ..difference.file }
    };
    Ok(differences.into_iter().map(file).collect())
}

/// A file and what it is afterwards; `None`: nothing, or a submodule.
struct Difference {
    file: ChangedFile,
    object: Option<ObjectId>,
}

/// Reads what git prints: a record and a path for each file, and then its counts of lines with the path. `None`: this is not what git prints.
fn parse(output: &[u8]) -> Option<Vec<Difference>> {
    let mut fields = output.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    let (mut objects, mut differences) = (HashMap::new(), vec![]);
    while let Some(field) = fields.next() {
        if let Some(record) = field.strip_prefix(b":") {
            let record = std::str::from_utf8(record).ok()?;
            let [_, mode, _, object, status] = record.split(' ').collect::<Vec<_>>()[..] else { return None };
            let is_stored = status != "D" && mode != "160000";
            let object = if is_stored { Some(ObjectId::parse(object)?) } else { None };
            objects.insert(fields.next()?, (status == "A", object));
            continue;
        }
        let [additions, deletions, path] = field.splitn(3, |byte| *byte == b'\t').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let count = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        let (is_new, object) = objects.remove(path)?;
        differences.push(Difference {
            file: ChangedFile {
                path: shown(path, PATH_CHARS_MAX),
                additions: count(additions).unwrap_or_default(),
                deletions: count(deletions).unwrap_or_default(),
                is_binary: additions == b"-",
                is_new,
                bytes: 0,
            },
            object,
        });
        if differences.len() == PUSH_LISTED_FILES_MAX {
            break;
        }
    }
    Some(differences)
}

fn parse_sizes(output: &[u8]) -> HashMap<String, u64> {
    let text = String::from_utf8_lossy(output);
    let line =
        |line: &str| line.split_once(' ').and_then(|(id, bytes)| Some((id.to_owned(), bytes.parse().ok()?)));
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_and_counts_of_lines_belong_together_by_the_path() {
        let (none, one) = ("0".repeat(40), "1".repeat(40));
        let text = format!(
            ":000000 100644 {none} {one} A\0:odd\tname\0:100644 000000 {one} {none} D\0gone\0:100755 100755 {one} {one} M\0bin\n\0\
             3\t0\t:odd\tname\x000\t2\tgone\0-\t-\tbin\n\0"
        );
        let read: Vec<_> =
            parse(text.as_bytes()).unwrap().into_iter().map(|it| (it.file, it.object.is_some())).collect();
        let file = |path: &str, additions, deletions| ChangedFile {
            path: path.to_owned(),
            additions,
            deletions,
            is_binary: false,
            is_new: false,
            bytes: 0,
        };
        assert_eq!(
            read,
            [
                (ChangedFile { is_new: true, ..file(":odd?name", 3, 0) }, true),
                (file("gone", 0, 2), false),
                (ChangedFile { is_binary: true, ..file("bin?", 0, 0) }, true),
            ]
        );
        assert!(parse(b"").unwrap().is_empty());
        for broken in [&b":1 2\0a\0"[..], b"1\t2\ta\0", b"x\0"] {
            assert!(parse(broken).is_none());
        }
    }
}
