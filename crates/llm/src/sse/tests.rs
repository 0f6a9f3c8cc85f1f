#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Decoder, Event, StreamError};
use proptest::prelude::*;

const LINE_BYTES_MAX: usize = 64;
/// Stands for the name of a bare line.
const BARE: &str = "bare line";

/// Decodes `bytes` cut into pieces of `piece` bytes, with what was pending at the end.
fn decode(bytes: &[u8], piece: usize) -> Result<(Vec<Event>, Vec<Event>), StreamError> {
    let mut decoder = Decoder::new(LINE_BYTES_MAX);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece, &mut events)?;
    }
    Ok((events, decoder.end()))
}

fn check(text: &[u8], want: &[(&str, &str)], rest: Option<(&str, &str)>) {
    let event = |(name, data): &(&str, &str)| match *name {
        BARE => Event { data: (*data).to_owned(), is_bare: true, ..Event::default() },
        name => Event { name: name.to_owned(), data: (*data).to_owned(), is_bare: false },
    };
    let want: Vec<Event> = want.iter().map(event).collect();
    for piece in 1..=text.len() {
        let got = decode(text, piece).unwrap();
        assert_eq!(
            got,
            (want.clone(), rest.as_ref().map(event).into_iter().collect()),
            "{} in {piece}s",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn every_line_end_gives_the_same_events() {
    for end in ["\n", "\r", "\r\n"] {
        let text = format!("event: a{end}data: 1{end}{end}data:2{end}data: {end}data:  3{end}{end}");
        check(text.as_bytes(), &[("a", "1"), ("", "2\n\n 3")], None);
    }
}

#[test]
fn comments_and_marks_are_ignored_and_unknown_fields_are_told_apart() {
    let text = "\u{feff}: hello\ndata: ä€😀\nid: 7\nretry: 5\nother: x\n nofield\n\n";
    check(text.as_bytes(), &[(BARE, "other: x"), (BARE, " nofield"), ("", "ä€😀")], None);
    check(b"data: 1\n\n{\"a\": 1}", &[("", "1")], Some((BARE, "{\"a\": 1}")));
    check(b"event: alone\n\ndata: 1\n\n", &[("", "1")], None);
    check(b"\n\n\ndata\n\n", &[("", "")], None);
}

#[test]
fn a_pending_event_at_the_end_is_returned_separately() {
    check(b"data: 1\n\ndata: 2\n", &[("", "1")], Some(("", "2")));
    check(b"data: 1\n\ndata: [DO", &[("", "1")], Some(("", "[DO")));
    check(b"data: 1\n\nevent: x\n", &[("", "1")], None);
}

#[test]
fn long_lines_and_long_events_are_refused() {
    let too_long = Err(StreamError::TooLong { bytes_max: LINE_BYTES_MAX });
    let line = format!("data: {}", "x".repeat(LINE_BYTES_MAX));
    let lines = "data: 1234567890123456\n".repeat(5);
    for piece in [1, 7, 1_000] {
        assert_eq!(decode(line.as_bytes(), piece), too_long);
        assert_eq!(decode(lines.as_bytes(), piece), too_long);
    }
    assert_eq!(decode(b"data: \xff\xfe\n\n", 3), Err(StreamError::NotUtf8));
}

#[test]
fn an_html_page_is_implausible_but_a_cut_line_is_plausible() {
    for (text, plausible) in [
        ("", true),
        ("<html>", false),
        ("{\"error\":1}\n", false),
        ("da", true),
        ("data: 1", true),
        (": ping\nx", true),
        ("dx", false),
    ] {
        let mut decoder = Decoder::new(LINE_BYTES_MAX);
        decoder.push(text.as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(decoder.is_plausible(), plausible, "{text}");
    }
}

proptest! {
    #[test]
    fn the_split_of_the_bytes_does_not_change_the_events(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..9) {
        let whole = decode(&bytes, bytes.len().max(1));
        let pieces = decode(&bytes, piece);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
            prop_assert_eq!(whole, pieces);
        }
    }
}
