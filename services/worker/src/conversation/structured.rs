//! Structured answers: a tool whose arguments are the answer. The tool runs nothing: a call that matches the schema is the
//! answer.

use convert_client::{converter::TenantConverter, reply::SchemaVerdict, request::SchemaCheck};
use domain::conversation::message::{Error, Format, User};
use domain::policy::tool;
use serde_json::Value;

/// Retries of a structured answer that does not match the schema, unless the prompt sets another number: OpenCode's
/// number.
const STRUCTURED_RETRIES: u32 = 2;

/// The tool's name: OpenCode's.
pub(crate) const NAME: &str = "StructuredOutput";
/// The instruction in the system prompt, in addition to the tool's description.
pub(crate) const SYSTEM: &str = "The person wants a structured answer. Work as usual; when you are done, call the tool \
     StructuredOutput with the answer as its arguments. Text does not count as an answer.";
/// What the model reads after an answer that matches the schema.
pub(crate) const CAPTURED: &str = "Structured output captured successfully.";

/// The required format of a turn's answer.
#[derive(Debug, Clone)]
pub(crate) struct Structured {
    schema: Value,
    /// The number of further answers that the model may give after one that does not match.
    retries: u32,
    /// The number of answers that did not match so far.
    misfits: u32,
}

impl Structured {
    /// The format that the prompt `user` requests, after `misfits` answers that did not match; `None` if it requests
    /// text.
    pub(crate) fn of(user: &User, misfits: u32) -> Option<Self> {
        let Some(Format::JsonSchema { schema, retry_count }) = &user.format else { return None };
        let retries = retry_count.unwrap_or(STRUCTURED_RETRIES);
        Some(Self { schema: schema.clone(), retries, misfits })
    }

    /// The tool for the model.
    pub(crate) fn spec(&self) -> tool::Spec {
        let mut schema = self.schema.clone();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
        }
        tool::Spec {
            name: NAME.to_owned(),
            description: "Gives the final answer in the required form. Call it exactly once, at the end."
                .to_owned(),
            schema,
        }
    }

    /// Checks an answer. The schema is the client's and may need any time, so the converter checks it.
    ///
    /// # Errors
    /// A sentence for the model with the problems and their locations.
    pub(crate) async fn check(&self, converter: TenantConverter<'_>, answer: &Value) -> Result<(), String> {
        let check = SchemaCheck { schema: self.schema.to_string(), value: Some(answer.to_string()) };
        match converter.schema(check).await {
            Ok(SchemaVerdict::Match) => Ok(()),
            Ok(SchemaVerdict::Mismatch(problems)) => {
                Err(format!("The answer does not fit the schema: {problems}. Call {NAME} again."))
            }
            Ok(SchemaVerdict::Unusable(problem)) => Err(format!("The schema cannot be used: {problem}.")),
            Err(error) => Err(format!("The answer cannot be checked: {}: {error}.", error.code())),
        }
    }

    /// The error that ends the turn after one more answer that does not match, if the retries are used up.
    pub(crate) fn retries_error(&self, problem: &str) -> Option<Error> {
        let again = self.misfits < self.retries;
        (!again).then(|| Error::structured(problem, self.misfits))
    }

    /// The error that ends a turn without a structured answer.
    pub(crate) fn missing_answer_error(&self) -> Error {
        Error::structured("The model gave no structured answer", self.misfits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn the_model_may_answer_again_until_its_retries_are_used_up() {
        let schema =
            json!({"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]});
        let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
        let converter = convert_client::converter::Converter::new(program);
        let converter = converter.of(domain::ids::TenantId(uuid::Uuid::nil()));
        let mut structured = Structured { schema, retries: 1, misfits: 0 };
        assert_eq!(structured.check(converter, &json!({"answer": 42})).await, Ok(()));
        let problem = structured.check(converter, &json!({"answer": "x"})).await.unwrap_err();
        assert!(problem.contains("number") && problem.contains("/answer"), "{problem}");
        assert_eq!(structured.retries_error(&problem), None);
        structured.misfits = 1;
        assert_eq!(structured.retries_error(&problem), Some(Error::structured(problem, 1)));
    }
}
