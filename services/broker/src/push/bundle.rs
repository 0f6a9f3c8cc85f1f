//! The bundle of a caller, as it arrives after the name of its newest commit: its head is read here, and its pack goes into a file of the directory, for git
//! to read.

use super::{
    directories::PushDirectory,
    error::PushError,
    request::{ObjectId, PushPart},
};
use bytes::BytesMut;
use domain::egress::push::PUSH_BYTES_MAX;
use futures::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;

/// Bytes of the head of a bundle: a few names of references. Beyond it: `push_content_invalid`.
const BUNDLE_HEAD_BYTES_MAX: usize = 16 * 1024;
/// The first lines of bundles that git writes.
const SIGNATURES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];
/// The file of the pack.
pub(super) const BUNDLE_PACK: &str = "bundle.pack";

/// Receives the name of the newest commit, which comes before the bundle.
///
/// # Errors
/// `Nothing`: it is the base commit. `ContentInvalid`; `Interrupted`: the caller could not name it; `CallerLeft`, also if the messages end before the name.
/// Hyper takes the reset of a call that its caller has cancelled for the end of its body, and a caller that is still there names a commit.
pub(super) async fn receive_commit(
    parts: &mut (impl Stream<Item = Option<PushPart>> + Unpin),
    base: &ObjectId,
) -> Result<ObjectId, PushError> {
    let name = match parts.next().await.flatten().ok_or(PushError::CallerLeft)? {
        PushPart::Commit(name) => name,
        PushPart::Data(_) => String::new(),
        PushPart::Failed => return Err(interrupted()),
    };
    match ObjectId::parse(&name) {
        Some(commit) if commit == *base => Err(PushError::Nothing),
        Some(commit) if commit.format() == base.format() => Ok(commit),
        Some(_) | None => {
            Err(PushError::ContentInvalid("what arrived names no commit of the repository".to_owned()))
        }
    }
}

/// Writes the pack of a bundle to [`BUNDLE_PACK`]. The names in the head have no effect: the caller says which commit is meant, and git checks that
/// the pack has it.
///
/// # Errors
/// `ContentInvalid`, `TooLarge`, `CallerLeft`; `Interrupted`: the caller could not read it to its end.
pub(super) async fn receive(
    directory: &PushDirectory,
    mut parts: impl Stream<Item = Option<PushPart>> + Unpin,
) -> Result<(), PushError> {
    let failed = |error: std::io::Error| PushError::failed("write a pack", &error);
    let mut file = directory.create(BUNDLE_PACK).await.map_err(failed)?;
    let (mut head, mut has_head, mut total) = (BytesMut::new(), false, 0_u64);
    while let Some(part) = parts.next().await {
        let piece = match part.ok_or(PushError::CallerLeft)? {
            PushPart::Data(piece) => piece,
            PushPart::Commit(_) => return Err(invalid()),
            PushPart::Failed => return Err(interrupted()),
        };
        total += piece.len() as u64;
        if total > PUSH_BYTES_MAX {
            return Err(PushError::TooLarge { most: PUSH_BYTES_MAX, what: "bytes" });
        }
        if has_head {
            file.write_all(&piece).await.map_err(failed)?;
            continue;
        }
        head.extend_from_slice(&piece);
        if let Some(end) = head_end(&head)? {
            has_head = true;
            file.write_all(&head[end..]).await.map_err(failed)?;
        }
    }
    if !has_head {
        return Err(invalid());
    }
    file.flush().await.map_err(failed)
}

/// Where the pack begins. `None`: the head is not there yet.
fn head_end(bytes: &[u8]) -> Result<Option<usize>, PushError> {
    let is_bundle = SIGNATURES.iter().any(|signature| {
        let count = signature.len().min(bytes.len());
        bytes[..count] == signature[..count]
    });
    let end = bytes.windows(2).position(|pair| pair == b"\n\n").map(|at| at + 2);
    let is_too_long = end.unwrap_or(bytes.len()) > BUNDLE_HEAD_BYTES_MAX;
    if is_bundle && !is_too_long { Ok(end) } else { Err(invalid()) }
}

fn interrupted() -> PushError {
    PushError::Interrupted("the commits did not arrive whole")
}

fn invalid() -> PushError {
    PushError::ContentInvalid("what arrived is no bundle of git".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_caller_that_leaves_is_no_caller_that_fails() {
        let base = ObjectId::parse(&"1".repeat(40)).unwrap();
        let receive = async |part| {
            let mut parts = Box::pin(futures::stream::iter([part]));
            receive_commit(&mut parts, &base).await.unwrap_err().code().as_str()
        };
        assert_eq!(receive(None).await, "caller_left");
        assert_eq!(receive(Some(PushPart::Failed)).await, "push_interrupted");
        let ended = receive_commit(&mut futures::stream::empty(), &base).await;
        assert_eq!(ended.unwrap_err().code().as_str(), "caller_left");
    }

    #[test]
    fn the_pack_begins_behind_an_empty_line() {
        let bundle = b"# v2 git bundle\n-1 base\n2 refs/heads/x\n\nPACK\n\n";
        assert_eq!(head_end(bundle), Ok(Some(bundle.len() - 6)));
        assert_eq!(head_end(b"# v2 git"), Ok(None));
        assert_eq!(head_end(b"# v3 git bundle\n@object-format=sha256\n"), Ok(None));
        assert_eq!(head_end(b"PACK"), Err(invalid()));
        let long = [&b"# v2 git bundle\n"[..], &vec![b'x'; BUNDLE_HEAD_BYTES_MAX]].concat();
        assert_eq!(head_end(&long), Err(invalid()));
    }
}
