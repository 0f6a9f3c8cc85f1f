//! The changes of a session, as a patch and as a git bundle. A helper sandbox reads them with a separate git directory,
//! so that the tenant's index, hooks, filters and configuration are neither used nor changed.

mod left_out;

use super::{large, scratch::Scratch};
use crate::{
    error::Error,
    helper::{self, refused},
    isolation::launch::Mount,
    session::{caller::Caller, state::Session},
    tree::{
        meta::{Meta, TREE},
        track::{DIRECTORY, EXCLUDED, INSIDE},
    },
};
use domain::{egress::push::PUSH_COMMITS_MAX, limits, text::is_object_id};
use rpc::v1::{
    DiffStat, DiffWorkspaceResponse, ErrorCode, ExportWorkspaceRequest, ExportWorkspaceResponse,
    KeepPatchResponse,
};
use std::{io, sync::Arc, time::Duration};
use tokio::sync::mpsc;

const DIFF_SCRIPT: &str = concat!(
    include_str!("../helper/git.sh"),
    include_str!("../helper/lfs-filter.sh"),
    include_str!("history.sh"),
    include_str!("../helper/nested.sh"),
    include_str!("shadow.sh"),
    include_str!("diff.sh")
);
/// Compares with a commit that holds files byte for byte, as snapshots do.
const DIFF_BYTES_SCRIPT: &str = concat!(
    include_str!("../helper/git.sh"),
    include_str!("../helper/lfs-filter.sh"),
    "attributes='* -text -ident !eol !crlf !filter !diff !merge !working-tree-encoding'\n",
    include_str!("history.sh"),
    include_str!("../helper/nested.sh"),
    include_str!("shadow.sh"),
    include_str!("diff.sh")
);
const EXPORT_SCRIPT: &str = concat!(
    include_str!("../helper/git.sh"),
    include_str!("../helper/lfs-filter.sh"),
    include_str!("lfs-own.sh"),
    include_str!("history.sh"),
    include_str!("../helper/nested.sh"),
    include_str!("shadow.sh"),
    include_str!("export.sh")
);
/// The index of the last look, next to the snapshots, and where a helper leaves it.
const LOOKED: &str = "looked";
const MESSAGE_DEFAULT: &str = "Changes by Flotilla";
/// Larger files are not in a diff; bytes. Git takes a second to read one of this size, and its diff is too long for a person.
const DIFF_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What a result lacks: as much as an answer names. The rest is only counted.
const LEFT_OUT_NAMED_MAX: usize = 20;
/// Changed files that the answer about a patch lists. The others are only counted.
const PATCH_FILES_LISTED_MAX: usize = 1_000;
/// Bytes of the records of what a result lacks. Beyond it: `diff_too_large`.
const LEFT_OUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest first line of an output: a commit or lengths. Our own scripts never print a longer one.
const LINE_BYTES_MAX: usize = 128;

/// The stream of an export.
pub type Sender = mpsc::Sender<Result<ExportWorkspaceResponse, tonic::Status>>;

/// What is compared, and how it is told.
#[derive(Debug, Clone, Copy)]
struct Comparison<'a> {
    /// A commit that the files are compared with byte for byte; empty: the base commit.
    from_commit: &'a str,
    /// Bytes of the patch.
    bytes_max: usize,
    /// Git's option for the form of the patch.
    form: &'static str,
}

struct Changes {
    /// Incomplete if it has more bytes than the comparison allows.
    patch: Vec<u8>,
    files: Vec<DiffStat>,
    /// What the patch does not have.
    left_out: Vec<String>,
    base_commit: String,
}

/// Gives the difference between the workspace and a commit with the files that it began with, or its base commit if `from_commit` is empty; at
/// most `bytes_max` bytes of patch.
///
/// # Errors
/// `workspace_missing`, `base_commit_missing`, `diff_too_large`, `argument_invalid`.
pub async fn diff(
    session: &Arc<Session>,
    from_commit: &str,
    bytes_max: usize,
) -> Result<DiffWorkspaceResponse, Error> {
    let comparison = Comparison { from_commit, bytes_max, form: "--patch" };
    let Changes { patch, files, left_out, base_commit } = compare(session, comparison).await?;
    let truncated = patch.len() > bytes_max;
    let patch = if truncated { whole_lines(&patch[..bytes_max]) } else { &patch };
    let patch = String::from_utf8_lossy(patch).into_owned();
    Ok(DiffWorkspaceResponse { patch, truncated, files, base_commit, left_out })
}

/// Keeps what [`diff`] compares as a patch of `caller`, which `git apply` takes: with the bytes of binary files. The workspace may belong to
/// another session.
///
/// # Errors
/// Those of [`diff`]; `epoch_stale`, `disk_full`.
pub async fn keep_patch(
    caller: &Caller,
    from_commit: &str,
    output_id: &str,
) -> Result<KeepPatchResponse, Error> {
    let bytes_max = usize::try_from(limits::EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
    let comparison = Comparison { from_commit, bytes_max, form: "--binary" };
    let Changes { patch, mut files, left_out, .. } = compare(&caller.root, comparison).await?;
    let files_total = u32::try_from(files.len()).unwrap_or(u32::MAX);
    files.truncate(PATCH_FILES_LISTED_MAX);
    let mut response = KeepPatchResponse { path: String::new(), files, files_total, left_out };
    if !patch.is_empty() && patch.len() <= bytes_max {
        caller.session.disk.check_host()?;
        let _right = caller.hold().await?;
        response.path = caller.session.execs.keep(output_id, patch).await?;
    }
    Ok(response)
}

async fn compare(session: &Arc<Session>, comparison: Comparison<'_>) -> Result<Changes, Error> {
    let Comparison { from_commit, bytes_max, form } = comparison;
    let meta = session.workspace().await?;
    let (script, commit) = match from_commit {
        "" => (DIFF_SCRIPT, meta.base_commit.clone()),
        commit if is_object_id(commit) => (DIFF_BYTES_SCRIPT, commit.to_owned()),
        _ => {
            return Err(Error::refused(ErrorCode::ArgumentInvalid, "from_commit must be the id of a commit"));
        }
    };
    let scratch = scratch(session, &meta)?;
    let arguments = vec![
        commit,
        DIFF_FILE_BYTES_MAX.to_string(),
        "leave".to_owned(),
        // One byte more than the limit shows that the patch is truncated.
        (bytes_max + 1).to_string(),
        LEFT_OUT_NAMED_MAX.to_string(),
        limits::DIFF_STATS_BYTES_MAX.to_string(),
        form.to_owned(),
    ];
    let names = LEFT_OUT_NAMED_MAX * (limits::PATH_BYTES_MAX + LINE_BYTES_MAX);
    let limit = bytes_max + 1 + limits::DIFF_STATS_BYTES_MAX + names + LINE_BYTES_MAX;
    let output = session.shared.helpers.run(task(session, &meta, &scratch, script, arguments), limit).await;
    keep_index(session, &scratch);
    scratch.remove().await;
    let output = output?;
    if output.code != 0 {
        return Err(explain(output.code, &output.stderr));
    }
    let broken = || refused(ErrorCode::Internal, "the changes could not be read", &output.stderr);
    let DiffOutput { stats, left_out, patch } = DiffOutput::parse(&output.stdout).ok_or_else(broken)?;
    let (patch, files) = (patch.to_vec(), parse_stats(stats));
    Ok(Changes { patch, files, left_out, base_commit: meta.base_commit })
}

/// What an export is made of.
#[derive(Debug, Clone, Copy)]
pub struct ExportForm<'a> {
    /// The message of the commit with what the session has not committed itself.
    pub message: &'a str,
    /// A line for the end of each message, with which the session's commits become commits of Flotilla; empty: they stay as they are.
    pub line: &'a str,
    /// Whether the commits of the session become one with all else.
    pub squash: bool,
}

impl<'a> ExportForm<'a> {
    /// The form of an export that a caller wants.
    pub fn of(request: &'a ExportWorkspaceRequest) -> Self {
        let ExportWorkspaceRequest { commit_message, message_line, squash, .. } = request;
        Self { message: commit_message, line: message_line, squash: *squash }
    }
}

/// Streams the workspace as commits on top of its base commit: those of the session, and one with what it has not committed. A workspace without
/// changes gives its base commit and no bytes. The message with the commit also says what of the session's work the result lacks.
///
/// # Errors
/// `workspace_missing`, `base_commit_missing`, and a bundle that is too large; the caller must discard what was sent
/// before.
pub async fn export(session: &Arc<Session>, form: ExportForm<'_>, to: &Sender) -> Result<(), Error> {
    let meta = session.workspace().await?;
    let message = if form.message.trim().is_empty() { MESSAGE_DEFAULT } else { form.message };
    let ours = if meta.base_is_ours { "yes" } else { "no" };
    // The bundle of a larger file may exceed the bound, and git would read the whole file to find out.
    let file_bytes_max = limits::BUNDLE_BYTES_MAX.to_string();
    let arguments = vec![
        meta.base_commit.clone(),
        file_bytes_max,
        "refuse".to_owned(),
        ours.to_owned(),
        message.to_owned(),
        // One more has what the session has not committed.
        (PUSH_COMMITS_MAX - 1).to_string(),
        limits::BUNDLE_BYTES_MAX.to_string(),
        form.line.to_owned(),
        if form.squash { "yes" } else { "no" }.to_owned(),
    ];
    let scratch = scratch(session, &meta)?;
    let result = announce(session, task(session, &meta, &scratch, EXPORT_SCRIPT, arguments), &meta, to).await;
    keep_index(session, &scratch);
    scratch.remove().await;
    result
}

/// Starts an export, sends its base commit, so that a push can begin while the helper reads the files, and then what the helper prints.
async fn announce(session: &Session, task: helper::Task, meta: &Meta, to: &Sender) -> Result<(), Error> {
    let running = session.shared.helpers.start(task).await?;
    let first = ExportWorkspaceResponse { base_commit: meta.base_commit.clone(), ..Default::default() };
    // If the caller has left, the next message ends the helper.
    drop(to.send(Ok(first)).await);
    relay(running, meta, to).await
}

/// Keeps the index that a helper leaves for the next one, so that it need not read the same files again. Without it, the next one takes longer.
fn keep_index(session: &Session, scratch: &Scratch) {
    let snapshots = session.shared.layout.workspace(&session.key).join(DIRECTORY);
    match std::fs::rename(scratch.path().join(LOOKED), snapshots.join(LOOKED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("the index of a look at files is not kept: {error}");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Makes a scratch directory that has what git ignores in addition to what the repository says.
fn scratch(session: &Session, meta: &Meta) -> Result<Scratch, Error> {
    let scratch = Scratch::make(session, session.shared.uid(meta.slot))?;
    let excluded = session.shared.layout.workspace(&session.key).join(DIRECTORY).join(EXCLUDED);
    match std::fs::copy(excluded, scratch.path().join(EXCLUDED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("copy what git ignores")(error))
        }
        Ok(_) | Err(_) => Ok(scratch),
    }
}

/// Runs a helper, and sends what it prints.
pub(super) async fn stream(
    session: &Session,
    task: helper::Task,
    meta: &Meta,
    to: &Sender,
) -> Result<(), Error> {
    let running = session.shared.helpers.start(task).await?;
    relay(running, meta, to).await
}

/// Sends what a helper prints: a line with a commit and the length of what the result lacks, these records, and a bundle. The commit does not
/// wait for the bundle.
async fn relay(mut running: helper::HelperRun, meta: &Meta, to: &Sender) -> Result<(), Error> {
    let mut failed = announce_commit(&mut running, meta, to).await.err();
    let mut total = 0;
    while failed.is_none() {
        let piece = match running.read_piece(rpc::CHUNK_BYTES).await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        total += piece.len() as u64;
        if total > limits::BUNDLE_BYTES_MAX {
            let text = format!(
                "the bundle of the files is too large; the limit is {} bytes; remove large files or have git ignore them",
                limits::BUNDLE_BYTES_MAX
            );
            failed = Some(Error::refused(ErrorCode::BundleTooLarge, text));
            break;
        }
        if to.send(Ok(ExportWorkspaceResponse { data: piece, ..Default::default() })).await.is_err() {
            break;
        }
    }
    let (code, stderr) = running.finish().await;
    match failed {
        Some(error) => Err(error),
        None if code != 0 && !to.is_closed() => Err(explain(code, &stderr)),
        None => Ok(()),
    }
}

/// Sends the commit, as soon as the helper has printed it, with what the result lacks. A helper that prints no commit fails with its exit code.
async fn announce_commit(running: &mut helper::HelperRun, meta: &Meta, to: &Sender) -> Result<(), Error> {
    let Some(mut read) = running.read_line(LINE_BYTES_MAX).await? else { return Ok(()) };
    let end = read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
    let line = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut rest = read.split_off((end + 1).min(read.len()));
    let broken = || Error::refused(ErrorCode::Internal, "the helper of an export printed no commit");
    let (commit, length) = line.split_once(' ').ok_or_else(broken)?;
    let length: usize = length.parse().map_err(|_| broken())?;
    if length > LEFT_OUT_BYTES_MAX {
        let text = "the files have too much that cannot be exported; `git status` in the session shows it";
        return Err(Error::refused(ErrorCode::DiffTooLarge, text));
    }
    if rest.len() < length {
        let missing = length - rest.len();
        running.read_to_end(&mut rest, missing).await?;
    }
    let (records, data) = rest.split_at_checked(length).ok_or_else(broken)?;
    let count = records.iter().filter(|byte| **byte == 0).count();
    let response = ExportWorkspaceResponse {
        commit: commit.to_owned(),
        base_commit: meta.base_commit.clone(),
        data: data.to_vec(),
        left_out: left_out::texts(first(records, LEFT_OUT_NAMED_MAX), count),
        install_key: meta.install.as_ref().map(|key| key.hex().to_owned()).unwrap_or_default(),
    };
    // If the caller has left, the next message ends the helper.
    drop(to.send(Ok(response)).await);
    Ok(())
}

/// The first records of a sequence, each with its NUL.
fn first(records: &[u8], count: usize) -> &[u8] {
    let end = records.iter().enumerate().filter(|(_, byte)| **byte == 0).nth(count.saturating_sub(1));
    end.map_or(records, |(at, _)| &records[..=at])
}

fn task(
    session: &Session,
    meta: &Meta,
    scratch: &Scratch,
    script: &'static str,
    arguments: Vec<String>,
) -> helper::Task {
    let workspace = session.shared.layout.workspace(&session.key);
    let (tree, snapshots) = (workspace.join(TREE), workspace.join(DIRECTORY));
    // Without them, git reads every file.
    let has_snapshots = snapshots.is_dir();
    let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
    helper::Task {
        script,
        arguments,
        mounts: [Mount::read(tree, "/workspace"), Mount::write(scratch.path(), "/run/sbx/scratch")]
            .into_iter()
            .chain(has_snapshots.then(|| Mount::read(snapshots, INSIDE)))
            .collect(),
        ..helper::Task::new(session.key.tenant, session.shared.uid(meta.slot), time_limit)
    }
}

fn explain(code: i32, stderr: &str) -> Error {
    match code {
        14 => refused(
            ErrorCode::BaseCommitMissing,
            "the workspace's .git no longer has the commit it started from",
            stderr,
        ),
        17 => Error::refused(
            ErrorCode::SnapshotUnknown,
            "the workspace has no such snapshot; it may have expired",
        ),
        20 => {
            let names: Vec<String> =
                large::parse(stderr.as_bytes()).iter().map(ToString::to_string).collect();
            let text = format!(
                "some files are too large to export, the limit is {} bytes; remove them or have git ignore them: {}",
                limits::BUNDLE_BYTES_MAX,
                names.join("; ")
            );
            Error::refused(ErrorCode::BundleTooLarge, text)
        }
        21 => Error::refused(
            ErrorCode::DiffTooLarge,
            "too many files changed for a diff; check out the result instead, and have git ignore files that are made again",
        ),
        137 => {
            Error::refused(ErrorCode::DiskFull, "the changes exceed the disk or memory limit of a workspace")
        }
        _ => refused(ErrorCode::Internal, "the changes could not be read", stderr),
    }
}

/// The output of diff.sh.
#[derive(Debug, PartialEq, Eq)]
struct DiffOutput<'a> {
    stats: &'a [u8],
    /// What the patch does not have.
    left_out: Vec<String>,
    patch: &'a [u8],
}

impl<'a> DiffOutput<'a> {
    /// Parses a line with two lengths and a number, the statistics, the names and the patch.
    fn parse(output: &'a [u8]) -> Option<Self> {
        let line = output.iter().position(|byte| *byte == b'\n')?;
        let numbers = std::str::from_utf8(&output[..line]).ok()?.split_whitespace();
        let numbers: Vec<usize> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [stats, names, count] = numbers[..] else { return None };
        let (stats, rest) = output[line + 1..].split_at_checked(stats)?;
        let (names, patch) = rest.split_at_checked(names)?;
        Some(Self { stats, left_out: left_out::texts(names, count), patch })
    }
}

/// Cuts an unfinished last line.
fn whole_lines(patch: &[u8]) -> &[u8] {
    let end = patch.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &patch[..end]
}

/// `added TAB removed TAB path NUL`, with `-` for binary files.
fn parse_stats(stats: &[u8]) -> Vec<DiffStat> {
    let parse = |record: &[u8]| {
        let text = String::from_utf8_lossy(record);
        let mut fields = text.splitn(3, '\t');
        let additions = fields.next()?.parse().unwrap_or(0);
        let deletions = fields.next()?.parse().unwrap_or(0);
        Some(DiffStat { path: fields.next()?.to_owned(), additions, deletions })
    };
    stats.split(|byte| *byte == 0).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn statistics_keep_odd_names() {
        let stats = parse_stats(b"1\t0\ta b\tc\0-\t-\timage.png\0");
        let stat =
            |path: &str, additions, deletions| DiffStat { path: path.to_owned(), additions, deletions };
        assert_eq!(stats, [stat("a b\tc", 1, 0), stat("image.png", 0, 0)]);
    }

    #[test]
    fn a_diff_names_what_it_leaves_out() {
        let parsed = DiffOutput::parse(b"3 13 2\nabc67108865 x\0y\0patch").unwrap();
        let left_out = vec!["x, 64.0 MiB".to_owned(), "and 1 more".to_owned()];
        assert_eq!(parsed, DiffOutput { stats: b"abc", left_out, patch: b"patch" });
        for broken in [&b"3 13\nabc"[..], b"9 0 0\nabc", b"x 0 0\n", b"0 0 0"] {
            assert_eq!(DiffOutput::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn patches_end_with_a_line() {
        assert_eq!(whole_lines(b"+a\n+b"), b"+a\n");
        assert_eq!(whole_lines(b"+a"), b"");
    }
}
