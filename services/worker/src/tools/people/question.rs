//! `question`: asks a person. This file defines the meaning of a call; the loop asks and parks.

use crate::tools::{
    outcome::ToolError,
    spec::{parse_arguments, tool_spec},
};
use domain::conversation::request::Question;
use domain::policy::tool;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Arguments {
    questions: Vec<Question>,
}

pub(crate) fn spec() -> tool::Spec {
    let option = json!({
        "type": "object",
        "properties": {"label": {"type": "string", "minLength": 1, "maxLength": 200}, "description": {"type": "string"}},
        "required": ["label"],
        "additionalProperties": false
    });
    tool_spec(
        "question",
        "Asks the person a question that only they can decide. The answer may take hours; nothing else happens meanwhile. \
         The person may also give an answer that is not among the options.",
        json!({
            "type": "object",
            "properties": {
                "questions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 10,
                    "items": {
                        "type": "object",
                        "properties": {
                            "question": {"type": "string", "minLength": 1, "maxLength": 4000},
                            "header": {"type": "string", "maxLength": 100},
                            "options": {"type": "array", "maxItems": 20, "items": option},
                            "multiple": {"type": "boolean"}
                        },
                        "required": ["question"],
                        "additionalProperties": false
                    }
                }
            },
            "required": ["questions"],
            "additionalProperties": false
        }),
    )
}

/// Reads a call.
///
/// # Errors
/// The model's mistake, as a sentence.
pub(crate) fn read(input: Value) -> Result<Vec<Question>, ToolError> {
    parse_arguments::<Arguments>(input).map(|arguments| arguments.questions)
}

/// What a call did, in a few words.
pub(crate) fn title(questions: &[Question]) -> String {
    match questions.len() {
        1 => "Asked 1 question".to_owned(),
        count => format!("Asked {count} questions"),
    }
}

/// The answers as OpenCode's clients show them: the labels for each question.
pub(crate) fn facts(labels: &[Vec<String>]) -> Map<String, Value> {
    Map::from_iter([("answers".to_owned(), json!(labels))])
}

/// The answers as the model reads them.
pub(crate) fn answer_text(questions: &[Question], labels: &[Vec<String>]) -> String {
    let answer = |index: usize| match labels.get(index).map(Vec::as_slice) {
        None | Some([]) => "no answer".to_owned(),
        Some(labels) => labels.join(", "),
    };
    let pairs: Vec<String> = questions
        .iter()
        .enumerate()
        .map(|(index, question)| format!("{:?} = {:?}", question.question, answer(index)))
        .collect();
    format!("The person answered: {}. Continue with these answers.", pairs.join("; "))
}
