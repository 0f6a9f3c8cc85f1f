//! What a server says of a push: whether it took the objects and moved the branch, and what its hooks print.

use super::packet::{Packet, PacketReader, take};
use crate::push::error::PushError;
use bytes::BytesMut;

/// Bytes of what a server says to people. The rest is dropped.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::push) struct Report {
    /// Why the branch was not moved; `None`: it was.
    pub(in crate::push) refusal: Option<String>,
    /// What the server says to people, without what changes a terminal.
    pub(in crate::push) message: String,
}

/// Reads the answer to a push.
///
/// # Errors
/// `Unreachable`: it says nothing about the branch.
pub(super) async fn read(
    mut packets: PacketReader,
    reference: &str,
    has_bands: bool,
) -> Result<Report, PushError> {
    let (mut status, mut message) = (BytesMut::new(), vec![]);
    while let Some(packet) = packets.next().await? {
        let Packet::Line(bytes) = packet else { continue };
        match bytes.split_first() {
            Some((1, data)) if has_bands => status.extend_from_slice(data),
            Some((2 | 3, text)) if has_bands => message.extend_from_slice(text),
            Some(_) if !has_bands => {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                status.extend_from_slice(super::packet::line(&line).as_bytes());
            }
            Some(_) | None => {}
        }
    }
    message.truncate(MESSAGE_BYTES_MAX);
    let refusal = outcome(&mut status, reference).ok_or_else(|| {
        let said = cleaned(&message);
        let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
        packets.broken(&format!("does not say whether the branch was moved{said}"))
    })?;
    Ok(Report { refusal, message: cleaned(&message) })
}

/// Reads `unpack ok` and `ok refs/heads/x`, or `ng refs/heads/x reason`. `None`: nothing is said about the reference.
fn outcome(status: &mut BytesMut, reference: &str) -> Option<Option<String>> {
    let mut unpacking = None;
    while let Ok(Some(packet)) = take(status) {
        let Packet::Line(bytes) = packet else { break };
        let text = cleaned(&bytes);
        if let Some(result) = text.strip_prefix("unpack ").filter(|result| *result != "ok") {
            unpacking = Some(format!("it cannot use the objects: {result}"));
        } else if text.strip_prefix("ok ") == Some(reference) {
            return Some(unpacking);
        } else if let Some(rest) =
            text.strip_prefix("ng ").and_then(|rest| rest.strip_prefix(reference)?.strip_prefix(' '))
        {
            let reason = rest.trim().to_owned();
            return Some(Some(unpacking.unwrap_or(reason)));
        }
    }
    unpacking.map(Some)
}

/// Text of the server for a terminal: lines without control characters. What a progress line overwrites is dropped.
fn cleaned(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|line| {
        let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let is_shown = |letter: &char| !letter.is_control();
        line.chars().filter(is_shown).collect::<String>().trim_end().to_owned()
    });
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::push::remote::packet::{FLUSH, line};

    fn read(lines: &[&str]) -> Option<Option<String>> {
        let text: String = lines.iter().map(|text| line(text)).chain([FLUSH.to_owned()]).collect();
        outcome(&mut BytesMut::from(text.as_str()), "refs/heads/a")
    }

    #[test]
    fn a_branch_was_moved_or_not() {
        let said = |text: &str| Some(Some(text.to_owned()));
        assert_eq!(read(&["unpack ok\n", "ok refs/heads/a\n"]), Some(None));
        assert_eq!(read(&["unpack ok\n", "ng refs/heads/a hook declined\n"]), said("hook declined"));
        assert_eq!(
            read(&["unpack index-pack abnormal exit\n"]),
            said("it cannot use the objects: index-pack abnormal exit")
        );
        assert_eq!(read(&["unpack bad\n", "ok refs/heads/a\n"]), said("it cannot use the objects: bad"));
        assert_eq!(read(&["unpack ok\n", "ok refs/heads/ab\n"]), None, "another branch");
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn what_a_server_says_changes_no_terminal() {
        assert_eq!(cleaned(b"one 10%\rone 100%\ntwo \x1b[2Jx\x07\n\n"), "one 100%\ntwo [2Jx");
    }
}
