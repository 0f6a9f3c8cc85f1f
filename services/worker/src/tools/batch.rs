//! `batch`: several calls in one, which run in parallel. Each is validated, permitted and bounded like a separate call.

use super::{
    context::CallContext,
    media,
    outcome::{Output, ToolError},
    spec::{parse_arguments, tool_spec},
};
use domain::limits;
use domain::policy::tool;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    tool_calls: Vec<InnerCall>,
}

/// A call inside a batch.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct InnerCall {
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) parameters: Value,
}

/// The argument with the calls, and that of a call with its arguments.
pub(super) const CALLS: &str = "tool_calls";
pub(super) const PARAMETERS: &str = "parameters";

/// Maximum calls in one batch. A batch with more is refused, and the model reads why.
const CALLS_MAX: usize = 10;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "batch",
        "Makes several calls of other tools at once that do not depend on each other. task, question and batch itself \
         cannot be among them.",
        json!({
            "type": "object",
            "properties": {
                "tool_calls": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": CALLS_MAX,
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool": {"type": "string", "minLength": 1, "description": "Name of the tool"},
                            "parameters": {"type": "object", "description": "Its arguments"}
                        },
                        "required": ["tool", "parameters"],
                        "additionalProperties": false
                    }
                }
            },
            "required": ["tool_calls"],
            "additionalProperties": false
        }),
    )
}

/// The calls of a batch. Empty if the arguments do not match the schema: such a batch is refused before it runs.
pub(crate) fn inner_calls(input: &Value) -> Vec<InnerCall> {
    parse_arguments::<Input>(input.clone()).map(|input| input.tool_calls).unwrap_or_default()
}

/// The exec ids of a batch's commands.
pub(crate) fn exec_ids(exec_id: &str, input: &Value) -> Vec<String> {
    let count = input.get(CALLS).and_then(Value::as_array).map_or(0, Vec::len).min(CALLS_MAX);
    (0..count).map(|number| format!("{exec_id}-{number}")).collect()
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let count = input.tool_calls.len();
    let calls = input.tool_calls.into_iter().enumerate().map(|(number, call)| async move {
        let inner = ctx.inner(number, &call.tool, call.parameters);
        (call.tool, (ctx.perform_inner)(&inner).await)
    });
    // Returns the answers in the order of the calls, not in the order of their completion.
    let answers: Vec<_> = futures::stream::iter(calls).buffered(limits::TOOLS_PARALLEL_MAX).collect().await;
    let (mut text, mut done, mut todos, mut files) = (String::new(), 0, None, vec![]);
    for (number, (name, answer)) in answers.into_iter().enumerate() {
        let (state, result) = match answer {
            Ok(output) if !media::fits(files.iter(), &output.media) => ("failed", media::TOO_MANY.to_owned()),
            Ok(output) => {
                done += 1;
                todos = output.todos.or(todos);
                files.extend(output.media);
                ("done", output.text)
            }
            Err(ToolError::Model(message)) => ("failed", message),
            Err(other) => return Err(other),
        };
        text.push_str(&format!(
            "<call number=\"{}\" tool=\"{name}\" state=\"{state}\">\n{result}\n</call>\n",
            number + 1
        ));
    }
    let mut metadata = Map::new();
    metadata.insert("done".to_owned(), done.into());
    metadata.insert("failed".to_owned(), (count - done).into());
    Ok(Output { title: format!("{done} of {count} calls done"), text, metadata, todos, media: files })
}
