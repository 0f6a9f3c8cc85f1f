//! `batch`: several calls in one, side by side. Each is checked, permitted and run as if it stood alone.

use super::{Output, Performer, Repeat, ToolError, described, find, media, parse, run::Ctx, uses::Use};
use domain::limits;
use domain::tool;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The calls.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    tool_calls: Vec<Inner>,
}

/// One of them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Inner {
    tool: String,
    #[serde(default)]
    parameters: Value,
}

/// Calls in one.
const CALLS_MAX: usize = 10;

pub(super) fn spec() -> tool::Spec {
    described(
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

/// What the calls would be used on.
pub(super) fn uses(input: &Value) -> Vec<Use> {
    let calls = calls(input);
    let known = calls.iter().filter_map(|call| find(&call.tool).ok().map(|tool| (tool, &call.parameters)));
    known.filter(|(tool, _)| *tool != super::Tool::Batch).flat_map(|(tool, input)| tool.uses(input)).collect()
}

/// The tools of the calls.
pub(super) fn tools(input: &Value) -> Vec<super::Tool> {
    let calls = parse::<Input>(input.clone()).map(|input| input.tool_calls).unwrap_or_default();
    calls.iter().filter_map(|call| find(&call.tool).ok()).collect()
}

/// Whether a second run of the batch could change something twice.
pub(super) fn repeat(input: &Value) -> Repeat {
    let is_unknown =
        |call: &Inner| find(&call.tool).is_ok_and(|tool| tool.repeat(&call.parameters) == Repeat::Unknown);
    if calls(input).iter().any(is_unknown) { Repeat::Unknown } else { Repeat::Safe }
}

/// None when the arguments do not fit: such a call is refused before it runs.
fn calls(input: &Value) -> Vec<Inner> {
    parse::<Input>(input.clone()).map(|input| input.tool_calls).unwrap_or_default()
}

/// The names under which the sandbox knows the commands of a batch.
pub(super) fn exec_ids(exec_id: &str, input: &Value) -> Vec<String> {
    let count = input.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len).min(CALLS_MAX);
    (0..count).map(|number| format!("{exec_id}-{number}")).collect()
}

pub(super) async fn run(ctx: &Ctx, input: Input) -> Result<Output, ToolError> {
    let count = input.tool_calls.len();
    let calls = input.tool_calls.into_iter().enumerate().map(|(number, call)| async move {
        let name = call.tool.clone();
        (name, one(ctx, number, call).await)
    });
    // In the order of the calls, whichever is ready first.
    let answers: Vec<_> = futures::stream::iter(calls).buffered(limits::TOOLS_PARALLEL_MAX).collect().await;
    let (mut text, mut done, mut todos, mut files) = (String::new(), 0, None, vec![]);
    for (number, (name, answer)) in answers.into_iter().enumerate() {
        let (state, said) = match answer {
            Ok(output) if !media::fits(files.iter(), &output.media) => ("failed", media::TOO_MANY.to_owned()),
            Ok(output) => {
                done += 1;
                todos = output.todos.or(todos);
                files.extend(output.media);
                ("done", output.text)
            }
            Err(ToolError::Model(said)) => ("failed", said),
            Err(other) => return Err(other),
        };
        text.push_str(&format!(
            "<call number=\"{}\" tool=\"{name}\" state=\"{state}\">\n{said}\n</call>\n",
            number + 1
        ));
    }
    let mut metadata = Map::new();
    metadata.insert("done".to_owned(), done.into());
    metadata.insert("failed".to_owned(), (count - done).into());
    Ok(Output { title: format!("{done} of {count} calls done"), text, metadata, todos, media: files })
}

async fn one(ctx: &Ctx, number: usize, call: Inner) -> Result<Output, ToolError> {
    let tool = find(&call.tool).map_err(ToolError::Model)?;
    if tool == super::Tool::Batch || tool.performer() == Performer::Loop {
        return Err(ToolError::Model(format!(
            "{} cannot be called in a batch: call it by itself.",
            tool.name()
        )));
    }
    let inner = ctx.inner(number, tool.name(), call.parameters);
    let output = Box::pin(inner.perform()).await?;
    super::output::bounded(&inner, output).await
}
