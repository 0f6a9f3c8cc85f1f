//! Content that a repository names and a clone does not bring: submodules, and contents of Git LFS files. The model must not
//! take an empty directory or a pointer for the real thing.

use crate::{
    door::lfs::record::{self, PointerFiles, RECORD, Reason},
    paths::{Access, Kind, Roots},
};
use domain::egress::lfs::pointer::{LFS_POINTER_BYTES_MAX, LfsPointer};
use std::{io::Read as _, path::Path};

/// Bytes of `.gitmodules` and `.gitattributes` that are read. The rest is not read.
const READ_BYTES_MAX: u64 = 64 * 1024;
/// Submodules whose directories this module looks up. A sentence names only a few of them.
const SUBMODULES_MAX: usize = 1_000;
/// Submodules and patterns that one sentence names. The others are only counted.
const NAMED_MAX: usize = 10;
/// Bytes of one name in a sentence. The rest is cut.
const NAME_BYTES_MAX: usize = 200;

/// Returns a sentence for each kind of missing content.
pub(super) fn sentences(roots: &Roots) -> Vec<String> {
    let submodules: Vec<String> = submodule_paths(&text(roots, ".gitmodules"))
        .into_iter()
        .take(SUBMODULES_MAX)
        .filter(|path| is_empty(roots, path))
        .collect();
    let submodules = (!submodules.is_empty())
        .then(|| format!("The directories of these submodules are empty here: {}.", names(&submodules)));
    submodules.into_iter().chain(lfs_sentences(roots)).collect()
}

/// Returns a sentence for each reason for which files are pointers. Without a record, the clone did not ask for contents, and the sentence has the patterns of
/// these files.
fn lfs_sentences(roots: &Roots) -> Vec<String> {
    let record = text(roots, RECORD);
    if record.is_empty() {
        let patterns = lfs_patterns(&text(roots, ".gitattributes"));
        let sentence = |names: String| {
            format!("Files of these patterns are Git LFS pointers here, without their contents: {names}.")
        };
        return (!patterns.is_empty()).then(|| sentence(names(&patterns))).into_iter().collect();
    }
    let files = record::decode(&record).into_iter();
    files.filter_map(|(reason, files)| pointer_sentence(roots, reason, files)).collect()
}

/// The sentence about the files that are still pointers. `None`: the agent has replaced them.
fn pointer_sentence(roots: &Roots, reason: Reason, files: PointerFiles) -> Option<String> {
    let PointerFiles { paths, total } = files;
    let unnamed = total.saturating_sub(paths.len());
    let paths: Vec<String> = paths.into_iter().filter(|path| is_pointer(roots, path)).collect();
    let shown = paths.len().min(NAMED_MAX);
    let further = paths.len() - shown + unnamed;
    let further = (further > 0).then(|| format!("and {further} more"));
    let heads = paths.iter().take(shown).map(|path| domain::text::head(path, NAME_BYTES_MAX));
    let names: Vec<&str> = heads.chain(further.as_deref()).collect();
    (!names.is_empty()).then(|| format!("{}: {}.", reason.sentence(), names.join(", ")))
}

fn is_pointer(roots: &Roots, path: &str) -> bool {
    let file = roots.find(path, Access::Read).ok().and_then(|found| found.open_file(path).ok());
    let mut bytes = vec![];
    let read = file.map(|file| file.take(LFS_POINTER_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    matches!(read, Some(Ok(_))) && LfsPointer::parse(&bytes).is_some()
}

fn text(roots: &Roots, path: &str) -> String {
    let file = roots.find(path, Access::Read).ok().and_then(|found| found.open_file(path).ok());
    let mut bytes = vec![];
    // A file that cannot be read names nothing.
    let read = file.map(|file| file.take(READ_BYTES_MAX).read_to_end(&mut bytes));
    if matches!(read, Some(Ok(_))) { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

fn submodule_paths(gitmodules: &str) -> Vec<String> {
    let path = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "path").then(|| value.trim().to_owned())
    };
    gitmodules.lines().filter_map(path).filter(|path| !path.is_empty()).collect()
}

fn lfs_patterns(gitattributes: &str) -> Vec<String> {
    let pattern = |line: &str| {
        let mut words = line.split_whitespace();
        let pattern = words.next().filter(|pattern| !pattern.starts_with('#'))?;
        words.any(|word| word == "filter=lfs").then(|| pattern.to_owned())
    };
    gitattributes.lines().filter_map(pattern).collect()
}

/// Whether the directory of a submodule has no content. A path outside the workspace has none of the repository's.
fn is_empty(roots: &Roots, path: &str) -> bool {
    match roots.find(path, Access::Read) {
        Ok(found) if found.kind() == Kind::Directory => {
            let is_empty =
                |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
            found.path().is_ok_and(|path| is_empty(&path))
        }
        Ok(_) => false,
        Err(_) => true,
    }
}

fn names(all: &[String]) -> String {
    let heads = all.iter().take(NAMED_MAX).map(|name| domain::text::head(name, NAME_BYTES_MAX));
    let mut names = heads.collect::<Vec<_>>().join(", ");
    if all.len() > NAMED_MAX {
        names.push_str(&format!(", and {} more", all.len() - NAMED_MAX));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_and_lfs_patterns_are_read() {
        let modules = "[submodule \"a\"]\n\tpath = vendor/a\n\turl = https://x/path=y\n[submodule \"b\"]\npath=b\n path =\n";
        assert_eq!(submodule_paths(modules), ["vendor/a", "b"]);
        let attributes =
            "*.bin filter=lfs diff=lfs -text\n# *.x filter=lfs\n*.txt text\n  *.psd   filter=lfs\n";
        assert_eq!(lfs_patterns(attributes), ["*.bin", "*.psd"]);
    }

    #[test]
    fn a_sentence_names_a_few() {
        let many: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!(names(&many), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 2 more");
    }
}
