//! Finds the point that a session is reverted to, and the affected files.

use domain::{
    conversation::{message::Message, part::Body},
    ids::{MessageId, PartId},
};
use rpc::v1;
use store::log::messages::MessageWithParts;

/// Files in the state of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilesOfSnapshot {
    pub(super) snapshot: String,
    pub(super) paths: Vec<String>,
}

impl From<FilesOfSnapshot> for v1::FilesOfSnapshot {
    fn from(files: FilesOfSnapshot) -> Self {
        Self { snapshot: files.snapshot, paths: files.paths }
    }
}

/// A point of a conversation. A revert removes everything after it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// The first message to remove, or the message whose later parts are removed.
    pub(super) message: MessageId,
    /// The first part to remove.
    pub(super) part: Option<PartId>,
    /// The files that changed after the point, oldest change first: the first entry of a file has its state at the
    /// point.
    pub(super) files: Vec<FilesOfSnapshot>,
}

/// Finds the point before a message, or before one of its parts. A removed answer includes its prompt, unless a part of the
/// answer stays.
pub(super) fn find(
    entries: &[MessageWithParts],
    message: &MessageId,
    part: Option<&PartId>,
) -> Option<Point> {
    let at = entries.iter().position(|entry| entry.message.id() == message)?;
    let (mut first, mut part_count, mut stays) = (at, 0, None);
    if let Some(part) = part {
        let parts = &entries[at].parts;
        part_count = parts.iter().position(|(_, known)| known.id == *part)?;
        let says = |body: &Body| matches!(body, Body::Text(_) | Body::Tool(_));
        stays = parts[..part_count].iter().any(|(_, part)| says(&part.body)).then(|| part.clone());
    }
    if stays.is_none() {
        part_count = 0;
        let is_prompt = |entry: &MessageWithParts| matches!(entry.message, Message::User(_));
        first = entries[..=at].iter().rposition(is_prompt).unwrap_or(at);
    }
    let later = entries[first + 1..].iter().flat_map(|entry| &entry.parts);
    let files = entries[first].parts.iter().skip(part_count).chain(later).filter_map(|(_, part)| {
        let Body::Patch(patch) = &part.body else { return None };
        Some(FilesOfSnapshot { snapshot: patch.hash.clone(), paths: patch.files.clone() })
    });
    Some(Point { message: entries[first].message.id().clone(), part: stays, files: files.collect() })
}

/// The state of the files before a message: the first snapshot after it, or else the newest one before it.
pub(super) fn state_before<'a>(entries: &'a [MessageWithParts], message: &MessageId) -> Option<&'a str> {
    let at = entries.iter().position(|entry| entry.message.id() == message)?;
    let (earlier, later) = entries.split_at(at);
    let parts = earlier.iter().rev().flat_map(|entry| entry.parts.iter().rev());
    let newest = || {
        parts.map(|(_, part)| &part.body).find_map(|body| {
            if let Body::StepFinish(finish) = body { finish.snapshot.as_deref() } else { own_state(body) }
        })
    };
    first_state(later).or_else(newest)
}

/// The oldest snapshot in a conversation.
pub(super) fn first_state(entries: &[MessageWithParts]) -> Option<&str> {
    let parts = entries.iter().flat_map(|entry| &entry.parts);
    parts.map(|(_, part)| &part.body).find_map(|body| {
        if let Body::StepStart(start) = body { start.snapshot.as_deref() } else { own_state(body) }
    })
}

/// The snapshot in a part of its own.
fn own_state(body: &Body) -> Option<&str> {
    if let Body::Snapshot(snapshot) = body { Some(&snapshot.snapshot) } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use serde_json::{Value, json};

    fn entry(seq: u64, info: Value, parts: Vec<Value>) -> MessageWithParts {
        let id = format!("msg_{seq}");
        let mut info = info;
        let base = json!({"id": id, "sessionID": "ses_1", "time": {"created": 1}, "agent": "build"});
        info.as_object_mut().unwrap().extend(base.as_object().unwrap().clone());
        let part = |(number, mut part): (usize, Value)| {
            let base = json!({"id": format!("prt_{seq}{number}"), "messageID": id, "sessionID": "ses_1"});
            part.as_object_mut().unwrap().extend(base.as_object().unwrap().clone());
            (seq * 10 + number as u64, serde_json::from_value(part).unwrap())
        };
        let parts = parts.into_iter().enumerate().map(part).collect();
        MessageWithParts { seq, message: serde_json::from_value(info).unwrap(), parts }
    }

    fn prompt(seq: u64) -> MessageWithParts {
        let model = json!({"providerID": "p", "modelID": "m"});
        entry(seq, json!({"role": "user", "model": model}), vec![json!({"type": "text", "text": "x"})])
    }

    fn answer(seq: u64, parent: u64, hash: &str) -> MessageWithParts {
        let info = json!({
            "role": "assistant", "parentID": format!("msg_{parent}"), "providerID": "p", "modelID": "m",
            "mode": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        });
        let parts = vec![
            json!({"type": "step-start", "snapshot": hash}),
            json!({"type": "text", "text": "said"}),
            json!({"type": "text", "text": "more"}),
            json!({"type": "patch", "hash": hash, "files": [format!("/workspace/{hash}")]}),
        ];
        entry(seq, info, parts)
    }

    fn check(message: u64, part: Option<&str>, want: Option<(u64, Option<&str>, &[&str])>) {
        let talk = [prompt(1), answer(2, 1, "a"), answer(3, 1, "b"), prompt(4), answer(5, 4, "c")];
        let part = part.map(|part| part.parse().unwrap());
        let found = find(&talk, &format!("msg_{message}").parse().unwrap(), part.as_ref());
        let want = want.map(|(message, part, hashes)| Point {
            message: format!("msg_{message}").parse().unwrap(),
            part: part.map(|part| part.parse().unwrap()),
            files: hashes
                .iter()
                .map(|hash| FilesOfSnapshot {
                    snapshot: (*hash).to_owned(),
                    paths: vec![format!("/workspace/{hash}")],
                })
                .collect(),
        });
        assert_eq!(found, want);
    }

    #[test]
    fn a_message_takes_its_whole_turn_along() {
        check(4, None, Some((4, None, &["c"])));
        check(3, None, Some((1, None, &["a", "b", "c"])));
        check(9, None, None);
    }

    #[test]
    fn a_part_is_removed_alone_if_something_before_it_stays() {
        check(3, Some("prt_32"), Some((3, Some("prt_32"), &["b", "c"])));
        check(3, Some("prt_31"), Some((1, None, &["a", "b", "c"])));
        check(3, Some("prt_99"), None);
    }

    #[test]
    fn the_state_before_a_message_is_the_next_snapshot_or_the_last() {
        let talk = [prompt(1), answer(2, 1, "a"), prompt(3), answer(4, 3, "b"), prompt(5)];
        let before = |message: u64| state_before(&talk, &format!("msg_{message}").parse().unwrap());
        assert_eq!([before(1), before(3), before(4)], [Some("a"), Some("b"), Some("b")]);
        assert_eq!((before(5), before(9)), (None, None), "no step of these is complete");
    }

    #[test]
    fn the_first_state_is_of_the_first_step() {
        assert_eq!(first_state(&[prompt(1), answer(2, 1, "a"), answer(3, 1, "b")]), Some("a"));
    }
}
