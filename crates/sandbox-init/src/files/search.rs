//! Walks of the workspace: listing, glob and search. They skip .git and what .gitignore excludes, do not follow links,
//! and are bounded in files and time; the response says if it is incomplete.
//!
//! A walk goes by names, so a concurrent rename can lead it outside for a moment. Before it reports or reads an entry, it
//! opens the entry strictly beneath the root, and drops those that are not there.

use super::read::usize_or;
use crate::{
    paths::{Access, Kind, Root, Roots, WORKSPACE},
    service::Failure,
    stop::Stop,
};
use domain::limits;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::{DirEntry, WalkBuilder};
use rustix::fs::OFlags;
use sandbox_wire::v1::FailureCode;
use std::{
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, UNIX_EPOCH},
};
use wire::v1;

/// The default number of entries of a listing.
const LIST_ENTRIES: u32 = 1_000;
/// The default number of matches of a glob or a search.
const SEARCH_ENTRIES: u32 = 100;
/// Entries of a listing, glob or search at most. The result says that there are more.
const SEARCH_ENTRIES_MAX: u32 = 10_000;
/// Longest walk or search, in milliseconds; the response then says that it is truncated.
const WALK_MS: u64 = 15_000;
/// Larger files are left out of a search; bytes.
const GREP_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Matches of one line whose places are told.
const LINE_SPANS_MAX: usize = 100;
/// A longer line ends the search of its file: such a file is data, not text.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Compiled size of a pattern; bytes. The engine's time is linear in the text, whatever the pattern. Beyond it: `pattern_invalid`.
const PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Lists a directory tree, by path.
pub(super) fn list(
    roots: &Roots,
    request: &v1::ListFilesRequest,
    stop: &Stop,
) -> Result<v1::ListFilesResponse, Failure> {
    let start = directory(roots, &request.path)?;
    let limit = usize_or(request.entries_max, LIST_ENTRIES as usize).min(SEARCH_ENTRIES_MAX as usize);
    let ignored = globs(&request.ignore)?;
    let mut walk = Walk::new(roots, &start, stop)?;
    let mut entries = Vec::new();
    while let Some(entry) = walk.next() {
        if entry.depth() == 0 || matches_any(&ignored, &start, entry.path()) {
            continue;
        }
        if entries.len() == limit {
            return Ok(v1::ListFilesResponse { entries, truncated: true });
        }
        let Some(metadata) = walk.metadata(entry.path()) else { continue };
        entries.push(file_entry(entry.path(), &metadata));
    }
    Ok(v1::ListFilesResponse { entries, truncated: walk.is_cut })
}

/// Finds files by a glob, newest first.
pub(super) fn glob(
    roots: &Roots,
    request: &v1::GlobFilesRequest,
    stop: &Stop,
) -> Result<v1::GlobFilesResponse, Failure> {
    let start = directory(roots, &request.path)?;
    let limit = usize_or(request.entries_max, SEARCH_ENTRIES as usize).min(SEARCH_ENTRIES_MAX as usize);
    let matcher = pattern(&request.pattern, &start)?;
    let mut walk = Walk::new(roots, &start, stop)?;
    let (mut entries, mut dropped) = (Vec::new(), false);
    while let Some(entry) = walk.next() {
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        if !is_file || !matcher.is_match(entry.path().strip_prefix(&start).unwrap_or(entry.path())) {
            continue;
        }
        let Some(metadata) = walk.metadata(entry.path()).filter(Metadata::is_file) else { continue };
        entries.push(file_entry(entry.path(), &metadata));
        // At twice the limit the older half is dropped, so memory stays bounded and the newest are kept.
        if entries.len() >= limit * 2 {
            newest_first(&mut entries);
            entries.truncate(limit);
            dropped = true;
        }
    }
    newest_first(&mut entries);
    let truncated = dropped || walk.is_cut || entries.len() > limit;
    entries.truncate(limit);
    Ok(v1::GlobFilesResponse { entries, truncated })
}

/// Finds lines by a regular expression, newest file first.
pub(super) fn grep(
    roots: &Roots,
    request: &v1::GrepFilesRequest,
    stop: &Stop,
) -> Result<v1::GrepFilesResponse, Failure> {
    let start = path_of(roots, &request.path)?;
    let limit = usize_or(request.matches_max, SEARCH_ENTRIES as usize).min(SEARCH_ENTRIES_MAX as usize);
    let invalid = |error: &dyn std::fmt::Display| {
        Failure::new(FailureCode::PatternInvalid, format!("the pattern: {error}"))
    };
    let matcher = matcher(&request.pattern).map_err(|error| invalid(&error))?;
    let include = if request.include.is_empty() { None } else { Some(pattern(&request.include, &start)?) };
    let mut walk = Walk::new(roots, &start, stop)?;
    let (mut files, mut left_out) = (Vec::new(), false);
    while let Some(entry) = walk.next() {
        let relative = entry.path().strip_prefix(&start).unwrap_or(entry.path());
        let is_included = entry.depth() == 0 || include.as_ref().is_none_or(|glob| glob.is_match(relative));
        if !is_included || !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Some(metadata) = walk.metadata(entry.path()).filter(Metadata::is_file) else { continue };
        left_out |= metadata.len() > GREP_FILE_BYTES_MAX;
        if metadata.len() <= GREP_FILE_BYTES_MAX {
            files.push((modified_at_ms(&metadata), entry.into_path()));
        }
    }
    files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut search = Search { matcher, limit, deadline: walk.deadline, stop, matches: Vec::new() };
    for (modified_at_ms, path) in &files {
        if search.is_over() {
            left_out = true;
            break;
        }
        // A file that cannot be read or that has vanished has no matches.
        drop(search.file(&walk, path, *modified_at_ms));
    }
    let truncated = left_out || walk.is_cut || search.matches.len() > limit;
    search.matches.truncate(limit);
    Ok(v1::GrepFilesResponse { matches: search.matches, truncated })
}

/// Reads a glob that is relative to the workspace.
pub(super) fn relative_glob(text: &str) -> Result<Glob, Failure> {
    let invalid =
        |error: globset::Error| Failure::new(FailureCode::PatternInvalid, format!("the pattern: {error}"));
    GlobBuilder::new(text).literal_separator(true).build().map_err(invalid)
}

/// Finds files by such globs. Returns their sorted paths, and whether a limit ended the walk.
pub(super) fn matching(roots: &Roots, globs: Vec<Glob>, stop: &Stop) -> Result<(Vec<String>, bool), Failure> {
    if globs.is_empty() {
        return Ok((vec![], false));
    }
    let invalid =
        |error: globset::Error| Failure::new(FailureCode::PatternInvalid, format!("the pattern: {error}"));
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob);
    }
    let (set, start) = (set.build().map_err(invalid)?, Path::new(WORKSPACE));
    let mut walk = Walk::new(roots, start, stop)?;
    let mut paths = vec![];
    while let Some(entry) = walk.next() {
        let path = entry.path().strip_prefix(start).unwrap_or(entry.path());
        let is_match = entry.file_type().is_some_and(|kind| kind.is_file()) && set.is_match(path);
        if is_match && walk.metadata(entry.path()).is_some() {
            paths.extend(path.to_str().map(str::to_owned));
        }
    }
    paths.sort();
    Ok((paths, walk.is_cut))
}

struct Search<'a> {
    matcher: RegexMatcher,
    limit: usize,
    deadline: Instant,
    stop: &'a Stop,
    matches: Vec<v1::GrepMatch>,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.matches.len() > self.limit || Instant::now() >= self.deadline || self.stop.is_set()
    }

    fn file(&mut self, walk: &Walk<'_>, path: &Path, modified_at_ms: i64) -> io::Result<()> {
        // It may have become a FIFO or a link since the walk.
        let file = walk.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if !file.metadata()?.is_file() {
            return Ok(());
        }
        let name = relative(path);
        let matcher = self.matcher.clone();
        searcher().search_file(matcher, &file, LineSink { search: self, path: &name, modified_at_ms })
    }

    /// The places of the matches in a line.
    fn spans(&self, text: &str) -> Vec<v1::GrepSpan> {
        let mut spans = Vec::new();
        let offset = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        // The engine reports no error.
        let _ = self.matcher.find_iter(text.as_bytes(), |found| {
            spans.push(v1::GrepSpan { start: offset(found.start()), end: offset(found.end()) });
            spans.len() < LINE_SPANS_MAX
        });
        spans
    }
}

/// Collects the matching lines of one file.
struct LineSink<'a, 'stop> {
    search: &'a mut Search<'stop>,
    path: &'a str,
    modified_at_ms: i64,
}

impl Sink for LineSink<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let text = String::from_utf8_lossy(found.bytes());
        let text: String =
            text.trim_end_matches(['\n', '\r']).chars().take(limits::LINE_CHARS as usize).collect();
        self.search.matches.push(v1::GrepMatch {
            path: self.path.to_owned(),
            line: found.line_number().unwrap_or_default(),
            spans: self.search.spans(&text),
            offset_bytes: found.absolute_byte_offset(),
            text,
            modified_at_ms: self.modified_at_ms,
        });
        Ok(!self.search.is_over())
    }
}

/// A bounded walk, which ends early when its operation is stopped. It skips directories that it cannot read.
struct Walk<'a> {
    root: &'a Root,
    walk: ignore::Walk,
    deadline: Instant,
    stop: &'a Stop,
    seen: usize,
    /// Whether a limit ended it.
    is_cut: bool,
}

impl<'a> Walk<'a> {
    /// A walk from `start`, a real path below one of the roots.
    fn new(roots: &'a Roots, start: &Path, stop: &'a Stop) -> Result<Self, Failure> {
        let (root, _) = roots.split(&start.to_string_lossy(), Access::Read)?;
        let walk = WalkBuilder::new(start)
            .standard_filters(false)
            .git_ignore(true)
            .ignore(true)
            .require_git(false)
            .parents(start != Path::new(WORKSPACE))
            .follow_links(false)
            .same_file_system(true)
            .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
            .sort_by_file_name(std::ffi::OsStr::cmp)
            .build();
        let deadline = Instant::now() + Duration::from_millis(WALK_MS);
        Ok(Self { root, walk, deadline, stop, seen: 0, is_cut: false })
    }

    /// The metadata of an entry, not of what a link names; `None` if the entry is gone or not beneath the root.
    fn metadata(&self, path: &Path) -> Option<Metadata> {
        self.open(path, OFlags::PATH).and_then(|entry| entry.metadata()).ok()
    }

    /// Opens an entry strictly beneath the root, and no link.
    fn open(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let rest = path.strip_prefix(self.root.path()).map_err(|_| io::ErrorKind::NotFound)?;
        let file = self.root.open_beneath(rest, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        Ok(File::from(file))
    }

    fn next(&mut self) -> Option<DirEntry> {
        loop {
            self.seen += 1;
            if self.seen > limits::WALK_FILES_MAX || Instant::now() >= self.deadline || self.stop.is_set() {
                self.is_cut = true;
                return None;
            }
            if let Ok(entry) = self.walk.next()? {
                return Some(entry);
            }
        }
    }
}

/// The real path of a directory below a root.
fn directory(roots: &Roots, path: &str) -> Result<PathBuf, Failure> {
    let found = roots.find(path, Access::Read)?;
    if found.kind() != Kind::Directory {
        return Err(Failure::new(FailureCode::FileNotFound, format!("{path} is not a directory")));
    }
    found.path().map_err(|error| Failure::new(FailureCode::Internal, format!("name {path}: {error}")))
}

/// The real path of a directory or file below a root.
fn path_of(roots: &Roots, path: &str) -> Result<PathBuf, Failure> {
    let found = roots.find(path, Access::Read)?;
    if found.kind() == Kind::Other {
        // This call returns the error.
        found.open_file(path)?;
    }
    found.path().map_err(|error| Failure::new(FailureCode::Internal, format!("name {path}: {error}")))
}

/// `$` matches before both kinds of line ends, as with ripgrep's `--crlf`.
fn matcher(pattern: &str) -> Result<RegexMatcher, grep_regex::Error> {
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).multi_line(true).crlf(true);
    builder.build(pattern)
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .build()
}

/// As ripgrep's `--glob`: without a slash it matches at any depth. A leading slash means `start`, commas part several patterns, and brackets also mean
/// themselves, because frameworks have directories such as `[id]`.
fn pattern(text: &str, start: &Path) -> Result<GlobSet, Failure> {
    let invalid =
        |error: globset::Error| Failure::new(FailureCode::PatternInvalid, format!("the pattern: {error}"));
    let mut set = GlobSetBuilder::new();
    let mut add = |text: &str| {
        let text = Path::new(text).strip_prefix(start).ok().and_then(Path::to_str).unwrap_or(text);
        let text = text.strip_prefix("./").unwrap_or(text);
        let text = match text.strip_prefix('/') {
            Some(below) => below.to_owned(),
            None if text.contains('/') => text.to_owned(),
            None => format!("**/{text}"),
        };
        set.add(GlobBuilder::new(&text).literal_separator(true).build()?);
        if text.contains('[') {
            set.add(GlobBuilder::new(&with_plain_brackets(&text)).literal_separator(true).build()?);
        }
        Ok(())
    };
    add(text).map_err(invalid)?;
    let parts = parts(text);
    if parts.len() > 1 {
        parts.into_iter().try_for_each(&mut add).map_err(invalid)?;
    }
    set.build().map_err(invalid)
}

/// The parts of a pattern between commas that stand in no braces.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && c == ','
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The pattern whose brackets mean themselves.
fn with_plain_brackets(text: &str) -> String {
    text.chars().fold(String::new(), |mut plain, c| {
        match c {
            '[' => plain.push_str("[[]"),
            ']' => plain.push_str("[]]"),
            c => plain.push(c),
        }
        plain
    })
}

fn globs(patterns: &[String]) -> Result<GlobSet, Failure> {
    let invalid =
        |error: globset::Error| Failure::new(FailureCode::PatternInvalid, format!("the pattern: {error}"));
    let mut set = GlobSetBuilder::new();
    for text in patterns {
        let text = text.trim_end_matches('/');
        let text =
            if text.contains('/') { text.trim_start_matches('/').to_owned() } else { format!("**/{text}") };
        set.add(GlobBuilder::new(&text).literal_separator(true).build().map_err(invalid)?);
    }
    set.build().map_err(invalid)
}

/// Whether the path or one of its parents matches.
fn matches_any(set: &GlobSet, start: &Path, path: &Path) -> bool {
    let relative = path.strip_prefix(start).unwrap_or(path);
    !set.is_empty() && relative.ancestors().any(|part| set.is_match(part))
}

fn newest_first(entries: &mut [v1::FileEntry]) {
    entries.sort_by(|a, b| b.modified_at_ms.cmp(&a.modified_at_ms).then_with(|| a.path.cmp(&b.path)));
}

fn file_entry(path: &Path, metadata: &Metadata) -> v1::FileEntry {
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => v1::FileKind::Directory,
        kind if kind.is_file() => v1::FileKind::Text,
        _ => v1::FileKind::Other,
    };
    v1::FileEntry {
        path: relative(path),
        kind: kind.into(),
        size_bytes: metadata.len(),
        modified_at_ms: modified_at_ms(metadata),
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(WORKSPACE).unwrap_or(path).to_string_lossy().into_owned()
}

fn modified_at_ms(metadata: &Metadata) -> i64 {
    let since = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_end_of_a_line_is_found_before_both_kinds_of_line_ends() {
        for text in ["a;\nfoo;\nfoo; b\nc", "a;\r\nfoo;\r\nfoo; b\r\nc"] {
            for (pattern, want) in [("foo;$", &[2][..]), ("^foo", &[2, 3]), ("c$", &[4]), (";$", &[1, 2])] {
                let mut lines = vec![];
                let sink = grep_searcher::sinks::UTF8(|number, _| {
                    lines.push(number);
                    Ok(true)
                });
                searcher().search_slice(matcher(pattern).unwrap(), text.as_bytes(), sink).unwrap();
                assert_eq!(lines, want, "{pattern} in {text:?}");
            }
        }
    }

    #[test]
    fn a_pattern_finds_what_its_author_means() {
        for (text, path, want) in [
            ("*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "x/src/a.rs", false),
            ("./src/*.rs", "src/a.rs", true),
            ("/app/**/*.tsx", "app/x/page.tsx", true),
            ("/app/**/*.tsx", "web/app/x/page.tsx", false),
            ("/workspace/app/*.tsx", "app/page.tsx", true),
            ("app/[id]/page.tsx", "app/[id]/page.tsx", true),
            ("app/[id]/page.tsx", "app/i/page.tsx", true),
            ("app/[...slug]/*", "app/[...slug]/page.tsx", true),
            ("**/[[...slug]]/*", "app/[[...slug]]/page.tsx", true),
            ("*.ts,*.tsx", "a/b.tsx", true),
            ("*.ts, *.tsx", "b.ts", true),
            ("*.{ts,tsx}", "b.tsx", true),
            ("*.{ts,tsx}", "b.js", false),
            ("a,b", "a,b", true),
        ] {
            let set = pattern(text, Path::new(WORKSPACE)).unwrap();
            assert_eq!(set.is_match(path), want, "{text} {path}");
        }
        assert!(pattern("[a", Path::new(WORKSPACE)).is_err());
    }
}
