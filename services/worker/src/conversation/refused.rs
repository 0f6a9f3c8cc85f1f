//! Pictures and documents that a provider refused. An attempt that failed because of them leaves a part `retry` with the code
//! `media_refused`, from which every worker derives the same: later requests do not have them.

use super::{
    entries::{as_step, is_finished},
    model_view::{answer_files, is_media},
};
use domain::{
    conversation::part::{Body, Part},
    turn::outcome::MEDIA_REFUSED,
};
use store::log::messages::MessageWithParts;

/// For each of `entries`, whether its pictures and documents stay out of requests.
///
/// A provider seldom names the one that it refused. Those that the same model has already answered are fine, so the others go; if there are none,
/// all of them go.
pub(crate) fn refused(entries: &[&MessageWithParts]) -> Vec<bool> {
    let mut refused = vec![false; entries.len()];
    for (at, entry) in entries.iter().enumerate() {
        for _ in 0..marks(&entry.parts) {
            let from = newest_answer(&entries[..at], entry).unwrap_or(0);
            let is_new = (from..at).any(|at| !refused[at] && has_media(entries[at]));
            refused[if is_new { from } else { 0 }..at].fill(true);
        }
    }
    refused
}

/// How many attempts of a step failed because of pictures and documents.
fn marks(parts: &[(u64, Part)]) -> usize {
    parts.iter().filter(|(_, part)| part.body.is_failed_attempt(MEDIA_REFUSED)).count()
}

/// The newest entry that the model of `step` wrote: it has seen everything before.
fn newest_answer(entries: &[&MessageWithParts], step: &MessageWithParts) -> Option<usize> {
    let model = |entry: &MessageWithParts| as_step(entry).map(|step| step.model.model.clone());
    let is_answer = |entry: &&MessageWithParts| {
        as_step(entry).is_some_and(|answer| is_finished(answer) && !answer.is_summary())
            && model(entry) == model(step)
    };
    entries.iter().rposition(is_answer)
}

fn has_media(entry: &MessageWithParts) -> bool {
    entry.parts.iter().any(|(_, part)| match &part.body {
        Body::File(file) => is_media(&file.mime) && file.url.starts_with("data:"),
        Body::Tool(tool) => answer_files(&tool.state).iter().any(|file| is_media(&file.mime)),
        Body::Text(_)
        | Body::Reasoning(_)
        | Body::Agent(_)
        | Body::Subtask(_)
        | Body::Compaction(_)
        | Body::Patch(_)
        | Body::Snapshot(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => false,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::{
        super::entries::tests::{step, text, user},
        *,
    };
    use domain::{
        conversation::{
            message::{Error, Message},
            part::{Retry, RetryTime, attached::File},
        },
        ids::Timestamp,
    };

    fn picture() -> Body {
        let (mime, url) = ("image/png".to_owned(), "data:image/png;base64,AA==".to_owned());
        Body::File(File { mime, filename: None, url, source: None })
    }

    fn mark(code: &str) -> Body {
        let time = RetryTime { created: Timestamp(1) };
        Body::Retry(Retry { attempt: 1, error: Error::coded(code, "no"), time })
    }

    fn failed(seq: u64, parent: u64, marks: usize) -> MessageWithParts {
        let mut entry = step(seq, parent, vec![mark(MEDIA_REFUSED); marks]);
        if let Message::Assistant(step) = &mut entry.message {
            (step.finish, step.error) = (None, Some(Error::new("APIError", "no")));
        }
        entry
    }

    fn of(entries: &[MessageWithParts]) -> Vec<bool> {
        refused(&entries.iter().collect::<Vec<_>>())
    }

    #[test]
    fn what_a_model_has_not_answered_yet_is_what_its_provider_refused() {
        let fine = [user(1, vec![picture()]), step(2, 1, vec![text("a cat")])];
        let bad = [user(3, vec![picture()])];
        let talk = |last: MessageWithParts| [&fine[..], &bad, &[last]].concat();
        assert_eq!(of(&talk(step(4, 3, vec![text("ok")]))), [false; 4], "nothing was refused");
        let other = step(4, 3, vec![mark("other"), text("ok")]);
        assert_eq!(of(&talk(other)), [false; 4], "another failure");
        for last in [failed(4, 3, 1), step(4, 3, vec![mark(MEDIA_REFUSED), text("ok")])] {
            assert_eq!(of(&talk(last)), [false, true, true, false]);
        }
        assert_eq!(of(&talk(failed(4, 3, 2))), [true, true, true, false], "the older ones were refused too");
        let later = [&talk(failed(4, 3, 1))[..], &[user(5, vec![picture()])]].concat();
        assert_eq!(of(&later), [false, true, true, false, false], "a newer one gets its own attempt");
    }

    #[test]
    fn a_model_that_reads_no_pictures_gets_none() {
        let mut other = step(4, 3, vec![mark(MEDIA_REFUSED)]);
        if let Message::Assistant(step) = &mut other.message {
            step.model.model.model_id = "blind".to_owned();
        }
        let talk =
            [user(1, vec![picture()]), step(2, 1, vec![text("a cat")]), user(3, vec![text("go on")]), other];
        assert_eq!(of(&talk), [true, true, true, false]);
        let talk = [
            user(1, vec![picture()]),
            step(2, 1, vec![text("a cat")]),
            user(3, vec![text("go on")]),
            failed(4, 3, 1),
        ];
        assert_eq!(of(&talk), [true, true, true, false], "it was fine before, but no other is left");
    }
}
