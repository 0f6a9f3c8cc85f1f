//! Parses git's comparison of two trees: the status of each file, its line counts, and its patch.

use crate::workspace::large::{self, LargeFile};
use domain::limits;
use rpc::v1::{FileDiff, FileStatus};
use std::collections::HashMap;

/// Bytes of one file's patch: neither people nor models read more. A longer one is left out, and the answer says so.
const SNAPSHOT_PATCH_BYTES_MAX: usize = 512 * 1024;

/// Bytes of the names and sizes of files that a snapshot left out: track.sh keeps 200. A comparison may take further ones for removed.
pub(super) const LEFT_OUT_BYTES_MAX: usize = 200 * (limits::PATH_BYTES_MAX + 32);

/// Every part of a patch begins with this, and no line of its content does.
const HEADER: &[u8] = b"diff --git ";

/// Parses the output of diff.sh. Returns the files and whether the list is incomplete; `None` if the output is
/// malformed.
pub(super) fn read(
    stdout: &[u8],
    list_bytes_max: usize,
    patch_bytes_max: usize,
) -> Option<(Vec<FileDiff>, bool)> {
    let end = stdout.iter().position(|byte| *byte == b'\n')?;
    let mut lengths = std::str::from_utf8(&stdout[..end]).ok()?.split(' ').map(str::parse::<usize>);
    let (statuses, lines, left_out) = (lengths.next()?.ok()?, lengths.next()?.ok()?, lengths.next()?.ok()?);
    let is_cut = statuses >= list_bytes_max || lines >= list_bytes_max;
    let (statuses, rest) = stdout[end + 1..].split_at_checked(statuses)?;
    let (lines, rest) = rest.split_at_checked(lines)?;
    let (left_out, patches) = rest.split_at_checked(left_out)?;
    let (mut files, count) = changed(statuses, lines);
    let are_all = add_patches(&mut files, patches, patch_bytes_max);
    let mut files: Vec<FileDiff> = files.into_iter().map(|(file, _)| file).collect();
    mark_left_out(&mut files, &large::parse(left_out));
    Some((files, is_cut || !are_all || count > limits::SNAPSHOT_FILES_MAX))
}

/// The files, each with its number of parts in the patch, and the total number of files.
fn changed(statuses: &[u8], lines: &[u8]) -> (Vec<(FileDiff, usize)>, usize) {
    let lines: HashMap<_, _> = lines.split(|byte| *byte == 0).filter_map(counts).collect();
    let mut records = statuses.split(|byte| *byte == 0);
    let (mut files, mut count) = (vec![], 0);
    while let (Some(letter), Some(path)) = (records.next(), records.next()) {
        count += 1;
        if files.len() == limits::SNAPSHOT_FILES_MAX {
            continue;
        }
        let (status, parts) = match letter {
            b"A" => (FileStatus::Added, 1),
            b"D" => (FileStatus::Deleted, 1),
            // A file that became a link, or a link that became a file: git removes one and adds the other.
            b"T" => (FileStatus::Modified, 2),
            _ => (FileStatus::Modified, 1),
        };
        let (added, removed): Counts<'_> = lines.get(path).copied().unwrap_or((b"0", b"0"));
        let number =
            |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let file = FileDiff {
            path: String::from_utf8_lossy(path).into_owned(),
            status: status.into(),
            additions: number(added),
            deletions: number(removed),
            binary: added == b"-",
            patch: String::new(),
        };
        files.push((file, parts));
    }
    (files, count)
}

/// What was added and removed.
type Counts<'a> = (&'a [u8], &'a [u8]);

/// `added TAB removed TAB path`.
fn counts(record: &[u8]) -> Option<(&[u8], Counts<'_>)> {
    let mut fields = record.splitn(3, |byte| *byte == b'\t');
    let (added, removed) = (fields.next()?, fields.next()?);
    Some((fields.next()?, (added, removed)))
}

/// A file that the later snapshot left out was not removed.
fn mark_left_out(files: &mut [FileDiff], left_out: &[LargeFile]) {
    for file in files.iter_mut().filter(|file| file.status() == FileStatus::Deleted) {
        if let Some(large) = left_out.iter().find(|large| large.path == file.path) {
            *file = FileDiff {
                path: large.path.clone(),
                status: FileStatus::Modified.into(),
                binary: true,
                patch: format!("left out: {large}\n"),
                ..FileDiff::default()
            };
        }
    }
}

/// Gives each file its parts of the patch. Returns whether the patch was complete.
fn add_patches(files: &mut [(FileDiff, usize)], patches: &[u8], bytes_max: usize) -> bool {
    let mut starts: Vec<usize> = vec![];
    let mut at = 0;
    while at < patches.len() {
        if patches[at..].starts_with(HEADER) {
            starts.push(at);
        }
        at = patches[at..].iter().position(|byte| *byte == b'\n').map_or(patches.len(), |end| at + end + 1);
    }
    // The last part may be truncated.
    let is_cut = patches.len() > bytes_max;
    let end = if is_cut { starts.pop().unwrap_or(0) } else { patches.len() };
    starts.push(end);
    let (mut next, mut are_all) = (0, true);
    for (file, parts) in files {
        let Some(end) = starts.get(next + *parts) else { return false };
        let patch = &patches[starts[next]..*end];
        next += *parts;
        if patch.len() > SNAPSHOT_PATCH_BYTES_MAX {
            are_all = false;
        } else {
            file.patch = String::from_utf8_lossy(patch).into_owned();
        }
    }
    are_all && !is_cut
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const PATCHES: &str = "diff --git a/a b/a\n+x\n-diff --git\ndiff --git a/l b/l\n-1\ndiff --git a/l b/l\n+2\n\
                           diff --git a/z b/z\nBinary files differ\n";

    /// Path, status, additions, deletions, whether it is binary, and lines of its patch.
    type Facts = (String, i32, u32, u32, bool, usize);

    fn read_with(patch_bytes_max: usize) -> (Vec<Facts>, bool) {
        let (statuses, lines) = ("M\0a\0T\0l\0A\0z\0", "1\t1\ta\x001\t1\tl\0-\t-\tz\0");
        let patches = &PATCHES[..PATCHES.len().min(patch_bytes_max + 1)];
        let output = format!("{} {} 0\n{statuses}{lines}{patches}", statuses.len(), lines.len());
        let (files, truncated) = read(output.as_bytes(), 1_000, patch_bytes_max).unwrap();
        let facts = |file: FileDiff| {
            (file.path, file.status, file.additions, file.deletions, file.binary, file.patch.lines().count())
        };
        (files.into_iter().map(facts).collect(), truncated)
    }

    #[test]
    fn every_file_gets_its_own_parts_of_the_patch() {
        let (files, truncated) = read_with(1_000);
        let (modified, added) = (FileStatus::Modified.into(), FileStatus::Added.into());
        let want = [
            ("a".to_owned(), modified, 1, 1, false, 3),
            ("l".to_owned(), modified, 1, 1, false, 4),
            ("z".to_owned(), added, 0, 0, true, 2),
        ];
        assert_eq!((files.as_slice(), truncated), (&want[..], false));
    }

    #[test]
    fn a_cut_patch_is_omitted_and_reported() {
        for bytes_max in 0..PATCHES.len() - 1 {
            let (files, truncated) = read_with(bytes_max);
            let whole = files.iter().map(|file| file.5).collect::<Vec<_>>();
            assert!(truncated && files.len() == 3, "{bytes_max}: {files:?}");
            assert!(
                [0, 3].contains(&whole[0]) && [0, 4].contains(&whole[1]) && whole[2] == 0,
                "{bytes_max}: {whole:?}"
            );
        }
    }

    #[test]
    fn a_file_that_was_left_out_is_not_removed() {
        let (statuses, lines, left_out) =
            ("D\0gone\0D\0large\0", "0\t1\tgone\x000\t2\tlarge\0", "8589934592 large\x007340032 new\0");
        let lengths = format!("{} {} {}", statuses.len(), lines.len(), left_out.len());
        let (files, _) =
            read(format!("{lengths}\n{statuses}{lines}{left_out}").as_bytes(), 1_000, 9).unwrap();
        let facts = |file: &FileDiff| (file.path.clone(), file.status(), file.deletions, file.patch.clone());
        let want = [
            ("gone".to_owned(), FileStatus::Deleted, 1, String::new()),
            ("large".to_owned(), FileStatus::Modified, 0, "left out: large, 8.0 GiB\n".to_owned()),
        ];
        assert_eq!(files.iter().map(facts).collect::<Vec<_>>(), want);
    }

    #[test]
    fn other_output_is_refused() {
        for output in ["", "x", "1 2", "1 2\nabc", "9 9 9\nabc", "a b c\n"] {
            assert!(read(output.as_bytes(), 10, 10).is_none(), "{output:?}");
        }
    }
}
