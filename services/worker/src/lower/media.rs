//! Limits the pictures and documents in one model request. Providers refuse a request that is too large, so only the newest
//! ones are sent, and older ones are mentioned by name, as are those that a provider refused.

use llm::request::{Media, Message, Source, UserPart};
use std::sync::Arc;

/// Bytes of the pictures and documents in one model call, in their encoded form. The worker replaces older ones by
/// text. The bound is below 20 MB, the smallest request limit of the providers.
const MODEL_MEDIA_WRITTEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pictures and documents in one model call; the worker replaces older ones by text. Providers accept 100 or more.
const MODEL_MEDIA_MAX: usize = 50;

/// Keeps in `messages` the newest pictures and documents that fit into one request, and mentions the others.
pub(super) fn bound(messages: &mut [Message]) {
    let (mut count, mut bytes) = (0, 0);
    let mut fits = |media: &Media| {
        count += 1;
        bytes += match &media.source {
            Source::Base64(data) => data.len(),
            Source::Url(url) => url.len(),
        };
        count <= MODEL_MEDIA_MAX && bytes <= MODEL_MEDIA_WRITTEN_BYTES_MAX
    };
    replace(messages, |media| (!fits(media)).then_some("there are too many newer pictures and documents"));
}

/// Mentions the pictures and documents in `messages`, which a provider refused.
pub(super) fn leave_out(messages: &mut [Message]) {
    replace(messages, |_| Some("the provider of the model refused it; tell the person if it matters"));
}

/// Replaces pictures and documents, the newest first, by mentions that give the reason.
fn replace(messages: &mut [Message], mut reason: impl FnMut(&Media) -> Option<&'static str>) {
    for message in messages.iter_mut().rev() {
        match message {
            Message::User(parts) => {
                for part in parts.iter_mut().rev() {
                    if let UserPart::Media(media) = part
                        && let Some(reason) = reason(media)
                    {
                        *part = UserPart::Text(mention(media, reason));
                    }
                }
            }
            Message::ToolResults(results) => {
                for result in results.iter_mut().rev() {
                    let media = std::mem::take(&mut result.media);
                    for media in media.into_iter().rev() {
                        match reason(&media) {
                            None => result.media.insert(0, media),
                            Some(reason) => {
                                let mention = mention(&media, reason);
                                Arc::make_mut(&mut result.text).push_str(&format!("\n{mention}"));
                            }
                        }
                    }
                }
            }
            Message::Assistant(_) => {}
        }
    }
}

/// The mention of a file that is left out.
fn mention(media: &Media, reason: &str) -> String {
    format!("[Left out because {reason}: {:?} ({})]", media.name, media.mime)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use llm::request::ToolResult;

    fn picture(name: &str, bytes: usize) -> Media {
        let source = Source::Base64("A".repeat(bytes));
        Media { mime: "image/png".to_owned(), name: name.to_owned(), source }
    }

    fn names(messages: &[Message]) -> Vec<&str> {
        let mut names = vec![];
        for message in messages {
            match message {
                Message::User(parts) => names.extend(parts.iter().filter_map(|part| match part {
                    UserPart::Media(media) => Some(media.name.as_str()),
                    UserPart::Text(_) => None,
                })),
                Message::ToolResults(results) => {
                    let media = results.iter().flat_map(|result| &result.media);
                    names.extend(media.map(|media| media.name.as_str()));
                }
                Message::Assistant(_) => {}
            }
        }
        names
    }

    fn talk(bytes: usize, of_tool: usize) -> Vec<Message> {
        let media = (0..of_tool).map(|at| picture(&format!("t{at}"), bytes)).collect();
        vec![
            Message::User(vec![UserPart::Media(picture("old", bytes))]),
            Message::ToolResults(vec![ToolResult {
                text: "read".to_owned().into(),
                media,
                ..ToolResult::default()
            }]),
            Message::User(vec![UserPart::Media(picture("new", bytes))]),
        ]
    }

    #[test]
    fn the_newest_media_stay_and_older_ones_are_told_in_words() {
        let mut few = talk(10, 2);
        let same = few.clone();
        bound(&mut few);
        assert_eq!(few, same);

        let mut large = talk(MODEL_MEDIA_WRITTEN_BYTES_MAX / 2, 2);
        bound(&mut large);
        assert_eq!(names(&large), ["t1", "new"]);
        assert!(matches!(&large[0], Message::User(parts)
            if matches!(&parts[..], [UserPart::Text(text)] if text.contains("\"old\" (image/png)"))));
        assert!(matches!(&large[1], Message::ToolResults(results) if results[0].text.contains("\"t0\"")));

        let mut refused = talk(1, 1);
        leave_out(&mut refused);
        assert_eq!(names(&refused), Vec::<&str>::new());
        assert!(
            matches!(&refused[1], Message::ToolResults(results) if results[0].text.contains("refused it"))
        );

        let mut many = talk(1, MODEL_MEDIA_MAX);
        bound(&mut many);
        let names = names(&many);
        assert_eq!((names.len(), names[0]), (MODEL_MEDIA_MAX, "t1"));
    }
}
