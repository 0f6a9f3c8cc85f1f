//! Finds the point that a session is reverted to, and the affected files.

use domain::{
    conversation::part::Body,
    ids::{MessageId, PartId},
};
use rpc::v1;
use store::log::outline::{MessageOutline, PartOutline};

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
pub(super) fn find(outline: &[MessageOutline], message: &MessageId, part: Option<&PartId>) -> Option<Point> {
    let at = outline.iter().position(|entry| entry.id == *message)?;
    let (mut first, mut part_count, mut stays) = (at, 0, None);
    if let Some(part) = part {
        let parts = &outline[at].parts;
        part_count = parts.iter().position(|known| known.id == *part)?;
        stays = parts[..part_count].iter().any(|part| part.is_text_or_tool).then(|| part.clone());
    }
    if stays.is_none() {
        part_count = 0;
        first = outline[..=at].iter().rposition(|message| message.is_prompt).unwrap_or(at);
    }
    let later = outline[first + 1..].iter().flat_map(|message| &message.parts);
    let files = outline[first].parts.iter().skip(part_count).chain(later).filter_map(|part| {
        let Some(Body::Patch(patch)) = &part.state else { return None };
        Some(FilesOfSnapshot { snapshot: patch.hash.clone(), paths: patch.files.clone() })
    });
    Some(Point { message: outline[first].id.clone(), part: stays, files: files.collect() })
}

/// The state of the files before a message: the first snapshot after it, or else the newest one before it.
pub(super) fn state_before<'a>(outline: &'a [MessageOutline], message: &MessageId) -> Option<&'a str> {
    let at = outline.iter().position(|entry| entry.id == *message)?;
    let (earlier, later) = outline.split_at(at);
    let mut states = earlier.iter().rev().flat_map(|message| message.parts.iter().rev()).filter_map(state);
    let newest = || {
        states.find_map(|body| {
            if let Body::StepFinish(finish) = body { finish.snapshot.as_deref() } else { own_state(body) }
        })
    };
    first_state(later).or_else(newest)
}

/// The oldest snapshot in a conversation.
pub(super) fn first_state(outline: &[MessageOutline]) -> Option<&str> {
    let mut states = outline.iter().flat_map(|message| &message.parts).filter_map(state);
    states.find_map(|body| {
        if let Body::StepStart(start) = body { start.snapshot.as_deref() } else { own_state(body) }
    })
}

fn state(part: &PartOutline) -> Option<&Body> {
    part.state.as_ref()
}

/// The snapshot in a part of its own.
fn own_state(body: &Body) -> Option<&str> {
    if let Body::Snapshot(snapshot) = body { Some(&snapshot.snapshot) } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::conversation::part::{Patch, StepStart};

    fn part(message: u64, number: u64, state: Option<Body>) -> PartOutline {
        let id = format!("prt_{message}{number}").parse().unwrap();
        PartOutline { id, is_text_or_tool: state.is_none(), state }
    }

    fn prompt(seq: u64) -> MessageOutline {
        let id = format!("msg_{seq}").parse().unwrap();
        MessageOutline { seq, id, is_prompt: true, parts: vec![part(seq, 0, None)] }
    }

    fn answer(seq: u64, hash: &str) -> MessageOutline {
        let start = Body::StepStart(StepStart { snapshot: Some(hash.to_owned()) });
        let patch = Body::Patch(Patch { hash: hash.to_owned(), files: vec![format!("/workspace/{hash}")] });
        let states = [Some(start), None, None, Some(patch)];
        let parts = (0..).zip(states).map(|(number, state)| part(seq, number, state)).collect();
        MessageOutline { is_prompt: false, parts, ..prompt(seq) }
    }

    fn check(message: u64, part: Option<&str>, want: Option<(u64, Option<&str>, &[&str])>) {
        let talk = [prompt(1), answer(2, "a"), answer(3, "b"), prompt(4), answer(5, "c")];
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
        let talk = [prompt(1), answer(2, "a"), prompt(3), answer(4, "b"), prompt(5)];
        let before = |message: u64| state_before(&talk, &format!("msg_{message}").parse().unwrap());
        assert_eq!([before(1), before(3), before(4)], [Some("a"), Some("b"), Some("b")]);
        assert_eq!((before(5), before(9)), (None, None), "no step of these is complete");
    }

    #[test]
    fn the_first_state_is_of_the_first_step() {
        assert_eq!(first_state(&[prompt(1), answer(2, "a"), answer(3, "b")]), Some("a"));
    }
}
