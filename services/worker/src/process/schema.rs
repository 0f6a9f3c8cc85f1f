//! Checks of a model's arguments against a JSON schema.

use domain::text::head;
use jsonschema::Validator;
use serde_json::Value;

/// Problems of one value that the model reads.
const PROBLEMS_MAX: usize = 5;
/// Bytes of one problem's text: it repeats the value that does not match.
const PROBLEM_BYTES_MAX: usize = 300;

/// Lists what does not match the schema, and where, in one line for the model; `None`: the value matches.
pub(crate) fn problems(schema: &Validator, value: &Value) -> Option<String> {
    let texts = schema.iter_errors(value).take(PROBLEMS_MAX).map(|problem| {
        let text = format!("{problem} (at {:?})", problem.instance_path().as_str());
        head(&text, PROBLEM_BYTES_MAX).to_owned()
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
