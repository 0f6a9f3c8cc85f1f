//! The files of configuration that a repository had in the commit that its workspace was opened at. They are read once,
//! before the first program of the tenant runs, and kept where no sandbox sees them. So an agent cannot loosen its own
//! restrictions by changing the files or .git later.

use crate::{
    error::Error,
    helper::{Queue, Task, refused},
    isolation::launch::Mount,
    layout,
    session::state::Session,
    tree::meta::Meta,
};
use domain::{
    limits,
    policy::reference::{self, SETTINGS_REFERENCES_MAX},
};
use prost::Message as _;
use rpc::v1::{self, ErrorCode};
use std::{io, path::Path, time::Duration};

const FILE: &str = "configuration";
/// The length that the script prints for a link.
const LINK_LENGTH: &str = "-2";
/// The length for the first file beyond the bound of their number.
const TOO_MANY_LENGTH: &str = "-3";
const SCRIPT: &str = concat!(
    include_str!("../helper/git.sh"),
    include_str!("configuration-places.sh"),
    include_str!("configuration.sh")
);
/// Bytes of the paths and lengths that the script prints in addition to the files.
const HEADS_BYTES_MAX: usize = limits::SETTINGS_FILES_MAX * (limits::PATH_BYTES_MAX + 16) + 64 * 1024;

/// Keeps the configuration of a new workspace.
///
/// # Errors
/// Those of the file system: a workspace must not be opened without the configuration that restricts it.
pub(super) fn keep(session: &Session, configuration: &v1::ConfigurationFiles) -> Result<(), Error> {
    let path = session.shared.layout.workspace(&session.key).join(FILE);
    layout::replace(&path, &configuration.encode_to_vec())
        .map_err(Error::io("keep the repository's configuration"))
}

/// Reads the configuration that a repository has in a commit, with the files that it names. The user `uid` has its files, which are in `build`.
///
/// # Errors
/// Those of the helper.
pub(super) async fn read_from_commit(
    session: &Session,
    build: &Path,
    uid: u32,
    commit: &str,
) -> Result<v1::ConfigurationFiles, Error> {
    let source = Source { session, build, uid, commit };
    let mut configuration =
        source.read(limits::SETTINGS_BYTES_MAX, limits::SETTINGS_FILES_MAX, vec![]).await?;
    let named = named_files(&configuration);
    if named.is_empty() {
        return Ok(configuration);
    }
    let bytes: usize = configuration.files.iter().map(|file| file.text.len()).sum();
    let left = limits::SETTINGS_BYTES_MAX.saturating_sub(bytes);
    let v1::ConfigurationFiles { files, left_out, too_large } =
        source.read(left, SETTINGS_REFERENCES_MAX, named).await?;
    configuration.files.extend(files);
    configuration.left_out.extend(left_out);
    configuration.too_large.extend(too_large);
    Ok(configuration)
}

/// The files that the configuration names and that are not among its own.
fn named_files(configuration: &v1::ConfigurationFiles) -> Vec<String> {
    let mut named: Vec<String> =
        configuration.files.iter().flat_map(|file| reference::files(&file.path, &file.text)).collect();
    named.retain(|path| configuration.files.iter().all(|file| file.path != *path));
    named.sort();
    named.dedup();
    named.truncate(SETTINGS_REFERENCES_MAX);
    named
}

/// A commit of a repository.
struct Source<'a> {
    session: &'a Session,
    build: &'a Path,
    uid: u32,
    commit: &'a str,
}

impl Source<'_> {
    /// Reads the `named` files, or the configuration if there are none: at most this many bytes and files.
    async fn read(
        &self,
        bytes_max: usize,
        files_max: usize,
        named: Vec<String>,
    ) -> Result<v1::ConfigurationFiles, Error> {
        let time_limit = Duration::from_millis(limits::WORKSPACE_HELPER_MS);
        let bounds = [limits::SETTINGS_FILE_BYTES_MAX, bytes_max, files_max].map(|bound| bound.to_string());
        let task = Task {
            script: SCRIPT,
            arguments: std::iter::once(self.commit.to_owned()).chain(bounds).chain(named).collect(),
            mounts: vec![Mount::read(self.build, "/workspace")],
            queue: Queue::Quick,
            ..Task::new(self.session.key.tenant, self.uid, time_limit)
        };
        let helpers = &self.session.shared.helpers;
        let output = helpers.run(task, limits::SETTINGS_BYTES_MAX + HEADS_BYTES_MAX).await?;
        let configuration = if output.code == 0 { parse(&output.stdout) } else { None };
        let broken = || {
            refused(ErrorCode::Internal, "the repository's configuration could not be read", &output.stderr)
        };
        configuration.ok_or_else(broken)
    }
}

/// Returns the kept files.
///
/// # Errors
/// Those of the file system, and when nothing was kept.
pub(crate) async fn read(session: &Session, meta: &Meta) -> Result<v1::ConfigurationFiles, Error> {
    if meta.base_is_ours {
        return Ok(v1::ConfigurationFiles::default());
    }
    let path = session.shared.layout.workspace(&session.key).join(FILE);
    let bytes = tokio::fs::read(path).await;
    let configuration =
        bytes.and_then(|bytes| v1::ConfigurationFiles::decode(bytes.as_slice()).map_err(io::Error::other));
    configuration.map_err(Error::io("read the repository's configuration"))
}

/// Parses a sequence of `path NUL length NUL bytes`.
fn parse(mut output: &[u8]) -> Option<v1::ConfigurationFiles> {
    let mut configuration = v1::ConfigurationFiles::default();
    while !output.is_empty() {
        let (path, rest) = split(output)?;
        let (length, rest) = split(rest)?;
        let path = String::from_utf8_lossy(path).into_owned();
        let why = match std::str::from_utf8(length).ok()? {
            "-1" => "it is too large",
            LINK_LENGTH => "it is a link",
            TOO_MANY_LENGTH => {
                "there are too many configuration files; this one and the following are not read"
            }
            length => {
                let (text, rest) = rest.split_at_checked(length.parse().ok()?)?;
                let text = String::from_utf8_lossy(text).into_owned();
                configuration.files.push(v1::GuidanceFile { path, text });
                output = rest;
                continue;
            }
        };
        configuration.left_out.push(format!("{path}: {why}"));
        if length != LINK_LENGTH.as_bytes() {
            let hides_others = length == TOO_MANY_LENGTH.as_bytes();
            configuration.too_large.push(v1::UnreadFile { path, reason: why.to_owned(), hides_others });
        }
        output = rest;
    }
    Some(configuration)
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn configuration_files_may_contain_any_bytes() {
        let output = b"opencode.json\x005\0{\0\xff}\n.opencode/agent/a.md\0-2\0b\0-1\0empty\x000\0";
        let configuration = parse(output).unwrap();
        let file = |path: &str, text: &str| v1::GuidanceFile { path: path.to_owned(), text: text.to_owned() };
        assert_eq!(configuration.files, [file("opencode.json", "{\0\u{fffd}}\n"), file("empty", "")]);
        assert_eq!(configuration.left_out, [".opencode/agent/a.md: it is a link", "b: it is too large"]);
        let unread = v1::UnreadFile {
            path: "b".to_owned(),
            reason: "it is too large".to_owned(),
            hides_others: false,
        };
        assert_eq!(configuration.too_large, [unread]);
        for broken in [&b"a"[..], b"a\x009\0xyz", b"a\0-9\0", b"a\0x\0"] {
            assert!(parse(broken).is_none(), "{broken:?}");
        }
    }
}
