//! The messages between the services and Postgres that a profile counts:
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>.

use std::collections::{BTreeMap, HashMap};

/// Bytes of the type and the length of a message.
const HEAD_BYTES: usize = 5;
/// Characters of a statement that tell it from others.
const TEXT_CHARS_MAX: usize = 160;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) transactions: u64,
    /// Executed statements, without the begin and the end of transactions.
    pub(crate) statements: u64,
    /// Answers for which a service waited.
    pub(crate) round_trips: u64,
    /// How often each statement was executed.
    pub(crate) by_text: BTreeMap<String, u64>,
}

/// The messages of one direction of a connection.
#[derive(Debug, Default)]
struct Messages {
    pending: Vec<u8>,
}

impl Messages {
    /// Calls `on` with the type and the content of each message that is complete now.
    fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(u8, &[u8])) {
        self.pending.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(head) = self.pending.get(from..from + HEAD_BYTES) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            // The length counts itself, but not the type.
            let Some(content) = self.pending.get(from + HEAD_BYTES..from + 1 + length) else { break };
            on(head[0], content);
            from += 1 + length;
        }
        self.pending.drain(..from);
    }
}

/// One connection of a service.
#[derive(Debug, Default)]
pub(super) struct Connection {
    requests: Messages,
    answers: Messages,
    /// Whether the first request, which has no type, has passed.
    is_started: bool,
    /// Whether the connection was ready before: it is ready once before its first request.
    was_ready: bool,
    /// Whether a statement ran since the last transaction. A request without one only tests the connection.
    has_executed: bool,
    /// The texts of the prepared statements by their names.
    prepared: HashMap<Vec<u8>, String>,
    bound: String,
}

impl Connection {
    /// Counts what these bytes of the service complete.
    pub(super) fn note_request(&mut self, mut bytes: &[u8], traffic: &mut Traffic) {
        if !self.is_started {
            // A driver sends the first message at once and whole.
            let Some(length) = bytes.first_chunk::<4>() else { return };
            bytes = bytes.get(u32::from_be_bytes(*length) as usize..).unwrap_or_default();
            self.is_started = true;
        }
        let Self { requests, prepared, bound, has_executed, .. } = self;
        requests.feed(bytes, |kind, content| match kind {
            b'P' => {
                let (name, rest) = split(content);
                prepared.insert(name.to_vec(), text(split(rest).0));
            }
            b'B' => {
                let statement = split(split(content).1).0;
                *bound = prepared.get(statement).cloned().unwrap_or_default();
            }
            b'E' => {
                *has_executed = true;
                note(bound, traffic);
            }
            b'Q' => {
                *has_executed = true;
                note(&text(split(content).0), traffic);
            }
            _ => {}
        });
    }

    /// Counts what these bytes of Postgres complete.
    pub(super) fn note_answer(&mut self, bytes: &[u8], traffic: &mut Traffic) {
        let Self { answers, was_ready, has_executed, .. } = self;
        answers.feed(bytes, |kind, content| {
            if kind != b'Z' || !std::mem::replace(was_ready, true) {
                return;
            }
            traffic.round_trips += 1;
            // Ready, and in no transaction.
            if content == b"I" {
                traffic.transactions += u64::from(std::mem::take(has_executed));
            }
        });
    }
}

fn note(text: &str, traffic: &mut Traffic) {
    // "begin" may set things in the same text.
    let word = text.split([' ', ';']).next().unwrap_or_default().to_lowercase();
    if !matches!(word.as_str(), "begin" | "commit" | "rollback") {
        traffic.statements += 1;
    }
    *traffic.by_text.entry(text.to_owned()).or_default() += 1;
}

/// Splits after a text that a zero ends.
fn split(content: &[u8]) -> (&[u8], &[u8]) {
    let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
    (&content[..end], content.get(end + 1..).unwrap_or_default())
}

fn text(statement: &[u8]) -> String {
    let words: Vec<_> =
        String::from_utf8_lossy(statement).split_whitespace().map(ToOwned::to_owned).collect();
    words.join(" ").chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn message(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
        [&[kind], length.as_slice(), content].concat()
    }

    #[test]
    fn statements_are_counted_in_pieces_of_any_size() {
        let mut sent = vec![0, 0, 0, 8, 0, 3, 0, 0];
        sent.extend(message(b'Q', b"begin; set local a = '1'\0"));
        sent.extend(message(b'P', b"s1\0select  a\n from b\0\0\0"));
        for _ in 0..2 {
            sent.extend(message(b'B', b"\0s1\0rest"));
            sent.extend(message(b'E', b"\0\0\0\0\0"));
            sent.extend(message(b'S', b""));
        }
        sent.extend(message(b'Q', b"COMMIT\0"));
        for size in [1, 3, 7, 1_000] {
            let (mut connection, mut traffic) = (Connection::default(), Traffic::default());
            // The first message comes whole.
            connection.note_request(&sent[..8], &mut traffic);
            sent[8..].chunks(size).for_each(|piece| connection.note_request(piece, &mut traffic));
            assert_eq!(traffic.statements, 2, "in pieces of {size}");
            assert_eq!(traffic.by_text["select a from b"], 2);
            assert_eq!(traffic.by_text["COMMIT"], 1);
        }
    }

    #[test]
    fn a_transaction_ends_when_the_connection_is_ready_and_in_none() {
        let (mut connection, mut traffic) = (Connection::default(), Traffic::default());
        connection.note_request(&[0, 0, 0, 8, 0, 3, 0, 0], &mut traffic);
        for (request, status) in [
            (None, b"I"),
            (Some(b"begin\0"), b"T"),
            (Some(b"query\0"), b"T"),
            (Some(b"abort\0"), b"I"),
            (None, b"I"),
        ] {
            if let Some(request) = request {
                connection.note_request(&message(b'Q', request), &mut traffic);
            }
            connection.note_answer(&message(b'C', b"DONE\0"), &mut traffic);
            connection.note_answer(&message(b'Z', status), &mut traffic);
        }
        assert_eq!(
            (traffic.round_trips, traffic.transactions),
            (4, 1),
            "the first is the log-in, the last a test"
        );
    }
}
