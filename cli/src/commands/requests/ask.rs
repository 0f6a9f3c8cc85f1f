//! Asks the person at the terminal what a session asks, and answers for them.

use super::answer::{self, Decision, Open};
use crate::{
    client::Client,
    terminal::{
        keyboard::{Keyboard, KeyboardEntry},
        output::Output,
        paint::{harmless, one_line},
    },
};
use anyhow::Result;
use rpc::v1::{PermissionAnswer, PermissionScope, Question, QuestionAnswer, QuestionItem};
use std::ops::ControlFlow;

/// Characters of an option's description.
const DESCRIPTION_CHARS: usize = 80;
/// What a person may type for a permission.
const ANSWERS: &str = "  (o)nce, (a)lways or (r)eject; Ctrl-D leaves it open: ";
const MESSAGE: &str = "  what the agent should do instead; Enter ends the turn: ";

/// How asking a person ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialogue {
    /// Every request has an answer now.
    Answered,
    /// There was no request.
    NothingOpen,
    /// The person left one open.
    LeftOpen,
    Interrupted,
}

/// Asks for an answer to each open request of a session and of its subtasks.
///
/// # Errors
/// The refusal of the gateway; the terminal is gone.
pub(crate) async fn answer_open(
    client: &Client,
    output: &Output,
    keyboard: &Keyboard,
    session_id: &str,
) -> Result<Dialogue> {
    let open = answer::list(client, session_id).await?;
    if open.is_empty() {
        return Ok(Dialogue::NothingOpen);
    }
    for request in &open {
        let paint = output.paint();
        let title = paint.yellow(&format!("? {}", title(request)));
        output.write(&format!("{title}\n{}", request.details(paint)))?;
        let decision = match request {
            Open::Permission(_) => of_permission(keyboard).await?,
            Open::Question(question) => of_question(output, keyboard, question).await?,
        };
        let decision = match decision {
            ControlFlow::Continue(decision) => decision,
            ControlFlow::Break(dialogue) => return Ok(dialogue),
        };
        if let Some(message) = answer::reply(client, request, &decision).await? {
            output.note(&format!("too late: {}", harmless(&message)));
        }
    }
    Ok(Dialogue::Answered)
}

/// The request in words; the items of a question follow one by one.
fn title(request: &Open) -> String {
    let what = match request {
        Open::Permission(_) => harmless(&request.words()),
        Open::Question(_) => "the agent asks".to_owned(),
    };
    format!("{what}  (session {})", harmless(request.session_id()))
}

async fn type_line(keyboard: &Keyboard, prompt: &str) -> Result<ControlFlow<Dialogue, String>> {
    Ok(match keyboard.line(prompt).await? {
        KeyboardEntry::Line(line) => ControlFlow::Continue(line),
        KeyboardEntry::Closed => ControlFlow::Break(Dialogue::LeftOpen),
        KeyboardEntry::Interrupted => ControlFlow::Break(Dialogue::Interrupted),
    })
}

async fn of_permission(keyboard: &Keyboard) -> Result<ControlFlow<Dialogue, Decision>> {
    loop {
        let answer = match type_line(keyboard, ANSWERS).await? {
            ControlFlow::Continue(line) => permission_answer(&line),
            ControlFlow::Break(dialogue) => return Ok(ControlFlow::Break(dialogue)),
        };
        let Some(answer) = answer else { continue };
        let message = if answer == PermissionAnswer::Reject {
            match type_line(keyboard, MESSAGE).await? {
                ControlFlow::Continue(line) => line,
                ControlFlow::Break(dialogue) => return Ok(ControlFlow::Break(dialogue)),
            }
        } else {
            String::new()
        };
        let decision = Decision::Permission { answer, message, scope: PermissionScope::Session };
        return Ok(ControlFlow::Continue(decision));
    }
}

fn permission_answer(line: &str) -> Option<PermissionAnswer> {
    match line.to_lowercase().as_str() {
        "o" | "once" | "y" | "yes" => Some(PermissionAnswer::Once),
        "a" | "always" => Some(PermissionAnswer::Always),
        "r" | "reject" | "n" | "no" => Some(PermissionAnswer::Reject),
        _ => None,
    }
}

async fn of_question(
    output: &Output,
    keyboard: &Keyboard,
    question: &Question,
) -> Result<ControlFlow<Dialogue, Decision>> {
    let mut answers = vec![];
    for item in &question.items {
        output.write(&item_text(item))?;
        let labels = loop {
            let line = match type_line(keyboard, hint(item)).await? {
                ControlFlow::Continue(line) => line,
                ControlFlow::Break(dialogue) => return Ok(ControlFlow::Break(dialogue)),
            };
            if let Some(labels) = labels(item, &line) {
                break labels;
            }
        };
        answers.push(QuestionAnswer { labels });
    }
    Ok(ControlFlow::Continue(Decision::Question(answers)))
}

/// An item with its options, which have numbers.
fn item_text(item: &QuestionItem) -> String {
    let mut text = format!("  {}\n", harmless(&item.question).replace('\n', "\n  "));
    for (number, option) in (1..).zip(&item.options) {
        let (label, description) =
            (one_line(&option.label, DESCRIPTION_CHARS), one_line(&option.description, DESCRIPTION_CHARS));
        text.push_str(format!("  {number:>3}  {label}  {description}").trim_end());
        text.push('\n');
    }
    text
}

fn hint(item: &QuestionItem) -> &'static str {
    match (item.options.is_empty(), item.multiple) {
        (true, _) => "  your answer; Ctrl-D leaves it open: ",
        (false, true) => "  numbers with commas, or your own text; Ctrl-D leaves it open: ",
        (false, false) => "  a number, or your own text; Ctrl-D leaves it open: ",
    }
}

/// The labels that a line names, or the line itself as an own text; `None`: it is no answer.
fn labels(item: &QuestionItem, line: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = if item.multiple { line.split(',').map(str::trim).collect() } else { vec![line] };
    let numbers: Option<Vec<usize>> = words.iter().map(|word| word.parse().ok()).collect();
    match numbers {
        Some(numbers) if !item.options.is_empty() => numbers
            .into_iter()
            .map(|number| Some(item.options.get(number.checked_sub(1)?)?.label.clone()))
            .collect(),
        Some(_) | None => (!line.is_empty()).then(|| vec![line.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use rpc::v1::QuestionOption;

    #[test]
    fn an_item_takes_numbers_of_its_options_or_a_text() {
        let option =
            |label: &str| QuestionOption { label: label.to_owned(), description: "why\nnot".to_owned() };
        let item = |multiple, labels: &[&str]| QuestionItem {
            question: "Which?".to_owned(),
            options: labels.iter().map(|label| option(label)).collect(),
            multiple,
            ..QuestionItem::default()
        };
        let (one, several, free) = (item(false, &["A", "B"]), item(true, &["A", "B"]), item(false, &[]));
        for (item, line, want) in [
            (&one, "2", Some(vec!["B"])),
            (&one, "3", None),
            (&one, "0", None),
            (&one, "", None),
            (&one, "neither, nor", Some(vec!["neither, nor"])),
            (&one, "1,2", Some(vec!["1,2"])),
            (&several, "2, 1", Some(vec!["B", "A"])),
            (&several, "1, x", Some(vec!["1, x"])),
            (&free, "7", Some(vec!["7"])),
        ] {
            let want = want.map(|labels| labels.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(labels(item, line), want, "{line:?} {item:?}");
        }
        assert_eq!(item_text(&one), "  Which?\n    1  A  why\n    2  B  why\n");
    }

    #[test]
    fn a_permission_takes_its_words_and_their_letters() {
        for (line, want) in [
            ("o", Some(PermissionAnswer::Once)),
            ("Always", Some(PermissionAnswer::Always)),
            ("no", Some(PermissionAnswer::Reject)),
            ("", None),
            ("maybe", None),
        ] {
            assert_eq!(permission_answer(line), want, "{line}");
        }
    }
}
