//! Structured answers: a tool whose arguments are the answer. Nothing runs: a call that fits the schema is the answer.

use domain::tool;
use domain::{
    limits::STRUCTURED_RETRIES,
    message::{Error, Format, User},
};
use serde_json::Value;
use std::sync::Arc;

/// The tool's name: OpenCode's.
pub(crate) const NAME: &str = "StructuredOutput";
/// What the model is told of it beside the tool.
pub(crate) const SYSTEM: &str = "The person wants a structured answer. Work as usual; when you are done, call the tool \
     StructuredOutput with the answer as its arguments. A text is not taken as an answer.";
/// What an answer that fits says to the model.
pub(crate) const TAKEN: &str = "Structured output captured successfully.";
/// Problems of one answer that the model is told.
const PROBLEMS_MAX: usize = 5;

/// What the answer of a turn must be.
#[derive(Debug, Clone)]
pub(crate) struct Structured {
    schema: Value,
    check: Option<Arc<jsonschema::Validator>>,
    /// How often an answer may be asked for again.
    retries: u32,
    /// How many did not fit so far.
    misfits: u32,
}

impl Structured {
    /// What `user` wants, after `misfits` answers that did not fit; `None` if that is a text.
    pub(crate) fn of(user: &User, misfits: u32) -> Option<Self> {
        let Some(Format::JsonSchema { schema, retry_count }) = &user.format else { return None };
        let check = jsonschema::validator_for(schema).ok().map(Arc::new);
        let retries = retry_count.unwrap_or(STRUCTURED_RETRIES);
        Some(Self { schema: schema.clone(), check, retries, misfits })
    }

    /// The tool.
    pub(crate) fn spec(&self) -> tool::Spec {
        let mut schema = self.schema.clone();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
        }
        tool::Spec {
            name: NAME.to_owned(),
            description:
                "Gives the final answer in the form that was asked for. Call it exactly once, at the end."
                    .to_owned(),
            schema,
        }
    }

    /// Checks an answer.
    ///
    /// # Errors
    /// A sentence for the model: what does not fit, and where.
    pub(crate) fn check(&self, answer: &Value) -> Result<(), String> {
        let Some(check) = &self.check else { return Err("The schema cannot be used.".to_owned()) };
        let problems: Vec<String> = check
            .iter_errors(answer)
            .take(PROBLEMS_MAX)
            .map(|problem| {
                let text = format!("{problem} (at {:?})", problem.instance_path().as_str());
                domain::text::head(&text, 300).to_owned()
            })
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!("The answer does not fit the schema: {}. Call {NAME} again.", problems.join("; ")))
    }

    /// The end of the turn, if no further answer is asked for after one more that does not fit.
    pub(crate) fn gives_up(&self, problem: &str) -> Option<Error> {
        let again = self.misfits < self.retries;
        (!again).then(|| Error::structured(problem, self.misfits))
    }

    /// The end of a turn whose model said something else.
    pub(crate) fn missing(&self) -> Error {
        Error::structured("The model gave no structured answer", self.misfits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_asked_for_again_until_nobody_wants_it_any_more() {
        let schema =
            json!({"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]});
        let mut wanted = Structured {
            check: jsonschema::validator_for(&schema).ok().map(Arc::new),
            schema,
            retries: 1,
            misfits: 0,
        };
        assert_eq!(wanted.check(&json!({"answer": 42})), Ok(()));
        let problem = wanted.check(&json!({"answer": "x"})).unwrap_err();
        assert!(problem.contains("number") && problem.contains("/answer"), "{problem}");
        assert_eq!(wanted.gives_up(&problem), None);
        wanted.misfits = 1;
        assert_eq!(wanted.gives_up(&problem), Some(Error::structured(problem, 1)));
    }
}
