use super::*;
use crate::conversation::entries::tests::step;
use domain::conversation::message::Message;

fn message() -> Assistant {
    match step(1, 0, vec![]).message {
        Message::Assistant(step) => *step,
        Message::User(_) => unreachable!("a step"),
    }
}

/// The stored text of a block that arrived in `deltas`, and the text that was sent and stored while it streamed.
fn texts(kind: Kind, deltas: &[&str], metadata: Option<Map<String, Value>>) -> (String, String) {
    let (mut draft, message) = (AnswerDraft::default(), message());
    let id: PartId = "prt_1".parse().expect("an id");
    draft.open(BlockStart { index: 0, id, kind, now: Timestamp(1) }, &message);
    deltas.iter().for_each(|delta| draft.push(0, delta));
    draft.set_metadata(0, metadata);
    let streamed = draft.blocks[0].text[..draft.blocks[0].trimmed].to_owned();
    draft.end(0, Timestamp(2));
    let text = match draft.take_ended(&message).pop().expect("an open block").body {
        Body::Text(text) => text.text,
        Body::Reasoning(thought) => thought.text,
        other => unreachable!("{other:?}"),
    };
    (text, streamed)
}

#[test]
fn a_text_ends_without_white_space_and_nothing_that_was_sent_is_taken_back() {
    for (deltas, want) in [
        (&["a", " ", "b\n", "\n"][..], "a b"),
        (&["  a  "], "  a"),
        (&["é\u{a0}", "\u{2003}"], "é"),
        (&[" ", "\n"], ""),
        (&[], ""),
    ] {
        for kind in [Kind::Text, Kind::Reasoning] {
            assert_eq!(texts(kind, deltas, None), (want.to_owned(), want.to_owned()), "{deltas:?}");
        }
    }
    let signed = Map::from_iter([("signature".to_owned(), json!("s"))]);
    let (text, streamed) = texts(Kind::Reasoning, &["a\n"], Some(signed.clone()));
    assert_eq!((text.as_str(), streamed.as_str()), ("a\n", "a"), "a signature holds for the exact text");
    assert_eq!(texts(Kind::Text, &["a\n"], Some(signed)).0, "a");
}

#[test]
fn white_space_alone_wakes_nobody() {
    let (mut draft, message) = (AnswerDraft::default(), message());
    let id: PartId = "prt_1".parse().expect("an id");
    draft.open(BlockStart { index: 0, id, kind: Kind::Text, now: Timestamp(1) }, &message);
    draft.push(0, "\n");
    assert_eq!(draft.next_flush(), draft.blocks[0].store_at(), "it is looked at once, with the next chunk");
}

#[test]
fn the_part_of_a_block_that_is_over_is_returned_once_and_not_changed() {
    let (mut draft, message) = (AnswerDraft::default(), message());
    let open = |draft: &mut AnswerDraft, index: u32, kind: Kind| {
        let id: PartId = format!("prt_{index}").parse().expect("an id");
        draft.open(BlockStart { index, id, kind, now: Timestamp(1) }, &message);
    };
    let signature = |text: &str| Some(Map::from_iter([("signature".to_owned(), json!(text))]));
    open(&mut draft, 0, Kind::Reasoning);
    draft.push(0, "thought");
    draft.set_metadata(0, signature("s"));
    draft.end(0, Timestamp(2));
    let due = draft.next_flush().expect("its end is due");
    assert!(!draft.has_late_end(due - Duration::from_millis(END_WINDOW_MS)) && draft.has_late_end(due));
    draft.set_metadata(0, None);
    draft.end(0, Timestamp(3));
    open(&mut draft, 1, Kind::Text);
    open(&mut draft, 2, Kind::Tool { call_id: "c".to_owned(), name: "bash".to_owned() });
    let ended = draft.take_ended(&message);
    let [Part { body: Body::Reasoning(thought), .. }] = &ended[..] else { unreachable!("{ended:?}") };
    assert_eq!((thought.time.end, &thought.metadata), (Some(Timestamp(2)), &signature("s")));
    assert!(draft.take_ended(&message).is_empty() && !draft.has_late_end(due));
    let rest = draft.end_all(&message, Timestamp(4));
    let ids: Vec<&str> = rest.iter().map(|part| part.id.as_str()).collect();
    assert_eq!(ids, ["prt_1"], "a call ends with the answer");
}
