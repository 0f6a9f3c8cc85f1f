//! The model request for a title: the text of the first prompt, and nothing else of the conversation.

use super::{
    entries::{Origin, as_user, compaction, origin},
    model_view::file_mention,
};
use domain::conversation::part::{Body, Part};
use llm::{
    model::{Effort, Model, Thinking},
    request::{Message, Request, UserPart},
};
use store::log::messages::MessageWithParts;

/// Bytes of the prompt that the title is made from: the beginning of a prompt says what it is about. The rest is cut.
const TITLE_PROMPT_BYTES_MAX: usize = 8 * 1024;
/// Tokens of the answer: one line, and room for a model that always reasons first. The provider cuts a longer one.
const TITLE_TOKENS_MAX: u64 = 4_096;

/// Tells the model how to write a title.
const SYSTEM: &str = include_str!("../prompt/title.txt");
/// The introduction before the text of the prompt.
const INTRODUCTION: &str = "Generate a title for this conversation:";
/// The same as OpenCode's.
const TEMPERATURE: f64 = 0.5;

/// Finds the prompt of a person, if there is exactly one. These do not count: a message without a reply, messages that the
/// loop writes around a summary, and a message with only synthetic texts, such as a shell command or the approval of a plan.
pub(crate) fn only_prompt(entries: &[MessageWithParts]) -> Option<&MessageWithParts> {
    let is_prompt = |entry: &&MessageWithParts| {
        as_user(entry).is_some()
            && origin(&entry.parts) == Origin::Prompt
            && compaction(&entry.parts).is_none()
            && !words(&entry.parts).trim().is_empty()
    };
    let mut prompts = entries.iter().filter(is_prompt);
    let first = prompts.next()?;
    prompts.next().is_none().then_some(first)
}

/// The request to `model`; `None` if the prompt has no text.
pub(crate) fn request(prompt: &MessageWithParts, model: &Model) -> Option<Request> {
    let words = words(&prompt.parts);
    let words = domain::text::head(words.trim(), TITLE_PROMPT_BYTES_MAX);
    (!words.is_empty()).then(|| Request {
        model: model.id.clone(),
        system: vec![SYSTEM.to_owned()],
        messages: vec![Message::User(vec![UserPart::Text(format!("{INTRODUCTION}\n\n{words}"))])],
        output_tokens_max: TITLE_TOKENS_MAX,
        temperature: Some(TEMPERATURE),
        variant: least_effort(model),
        ..Request::default()
    })
}

/// The lowest reasoning effort of the model: a title does not need more.
fn least_effort(model: &Model) -> Option<Effort> {
    match model.thinking {
        Thinking::Effort => model.efforts.iter().min().copied(),
        // These models do not reason unless asked to, or decide for themselves.
        Thinking::Fixed | Thinking::Adaptive | Thinking::Budget => {
            Some(Effort::Off).filter(|off| model.efforts.contains(off))
        }
    }
}

/// The person's own text, without the content of files that the prompt names.
fn words(parts: &[(u64, Part)]) -> String {
    let texts = parts.iter().filter_map(|(_, part)| match &part.body {
        Body::Text(text) if text.synthetic != Some(true) && text.ignored != Some(true) => {
            Some(text.text.clone())
        }
        Body::File(file) => Some(file_mention(file)),
        Body::Subtask(task) => Some(task.prompt.clone()),
        Body::Text(_)
        | Body::Agent(_)
        | Body::Compaction(_)
        | Body::Reasoning(_)
        | Body::Tool(_)
        | Body::Patch(_)
        | Body::Snapshot(_)
        | Body::StepStart(_)
        | Body::StepFinish(_)
        | Body::Retry(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::conversation::entries::{
        CONTINUE,
        tests::{step, text, user},
    };
    use domain::conversation::part::{NO_REPLY, Text, attached::Compaction};

    fn marked(words: &str, mark: &str) -> Body {
        Body::Text(Text::synthetic(words).marked(mark, true))
    }

    #[test]
    fn only_prompts_that_want_an_answer_are_counted() {
        let wish = || Body::Compaction(Compaction { auto: false, overflow: None, tail_start_id: None });
        let prompt = |seq| user(seq, vec![text("fix it")]);
        let shell = |seq| user(seq, vec![Body::Text(domain::conversation::command::shell("ls"))]);
        for (entries, want) in [
            (vec![], None),
            (vec![prompt(1)], Some(1)),
            (vec![prompt(1), step(2, 1, vec![]), user(3, vec![marked("go on", CONTINUE)])], Some(1)),
            (vec![user(1, vec![marked("by the way", NO_REPLY)]), prompt(2), user(3, vec![wish()])], Some(2)),
            (vec![shell(1), step(2, 1, vec![]), prompt(3)], Some(3)),
            (vec![prompt(1), step(2, 1, vec![]), prompt(3)], None),
        ] {
            assert_eq!(only_prompt(&entries).map(|entry| entry.seq), want, "{entries:?}");
        }
    }

    #[test]
    fn the_question_has_a_persons_words_and_a_bound() {
        let model = llm::catalogue::find_or_default("claude-haiku-4-5");
        let question_of = |bodies: Vec<Body>| {
            let request = request(&user(1, bodies), &model)?;
            assert_eq!((request.tools.len(), request.temperature), (0, Some(0.5)));
            assert_eq!(request.variant, Some(Effort::Off));
            let [Message::User(parts)] = &request.messages[..] else { panic!("{request:?}") };
            let [UserPart::Text(text)] = &parts[..] else { panic!("{parts:?}") };
            Some(text.clone())
        };
        let read = Body::Text(Text::synthetic("the content of a file"));
        let question = question_of(vec![text("Fix it "), read.clone(), text("soon")]).unwrap();
        assert_eq!(question, "Generate a title for this conversation:\n\nFix it \nsoon");
        assert_eq!(question_of(vec![text(" \n"), read]), None);
        let long = question_of(vec![text(&"ä".repeat(TITLE_PROMPT_BYTES_MAX))]).unwrap();
        assert!(long.len() <= INTRODUCTION.len() + 2 + TITLE_PROMPT_BYTES_MAX);
    }

    #[test]
    fn models_think_as_little_as_they_can() {
        for (model, want) in [
            ("gpt-5-mini", Some(Effort::Minimal)),
            ("gpt-5.1", Some(Effort::Off)),
            ("o4-mini", Some(Effort::Low)),
            ("gemini-2.5-flash", Some(Effort::Off)),
            ("gemini-2.5-pro", None),
            ("deepseek-reasoner", None),
            ("gpt-4o", None),
        ] {
            assert_eq!(least_effort(&llm::catalogue::find_or_default(model)), want, "{model}");
        }
    }
}
