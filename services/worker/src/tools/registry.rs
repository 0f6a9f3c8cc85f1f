//! The registry of tools: the model's selection, the lookup of a call's tool, and the validation of arguments.
// Continues in one file for each tool, for example `tools::bash`.

mod arguments;

use super::{
    bash, batch,
    context::CallContext,
    egress::{network, webfetch},
    files::{apply_patch, edit, glob, grep, list, multiedit, read, write},
    invalid,
    outcome::{Output, ToolError, conversion_error},
    people::{plan_exit, question},
    skill,
    spec::parse_arguments,
    task,
    todos::{todoread, todowrite},
    tool::{Repeat, Tool},
};
use convert_client::{converter::TenantConverter, reply::SchemaVerdict, request::SchemaCheck};
use domain::policy::tool;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::LazyLock};

struct Registered {
    tool: Tool,
    spec: tool::Spec,
    schema: Option<jsonschema::Validator>,
}

static REGISTRY: LazyLock<Vec<Registered>> = LazyLock::new(|| {
    Tool::ALL
        .iter()
        .map(|tool| {
            let spec = spec(*tool);
            let schema = jsonschema::validator_for(&spec.schema).ok();
            Registered { tool: *tool, spec, schema }
        })
        .collect()
});

fn spec(tool: Tool) -> tool::Spec {
    match tool {
        Tool::ApplyPatch => apply_patch::spec(),
        Tool::Bash => bash::spec(),
        Tool::Batch => batch::spec(),
        Tool::Edit => edit::spec(),
        Tool::Glob => glob::spec(),
        Tool::Grep => grep::spec(),
        Tool::List => list::spec(),
        Tool::MultiEdit => multiedit::spec(),
        Tool::Network => network::spec(),
        Tool::PlanExit => plan_exit::spec(),
        Tool::Question => question::spec(),
        Tool::Read => read::spec(),
        Tool::Skill => skill::spec(),
        Tool::Task => task::spec(),
        Tool::TodoRead => todoread::spec(),
        Tool::TodoWrite => todowrite::spec(),
        Tool::WebFetch => webfetch::spec(),
        Tool::Write => write::spec(),
    }
}

/// Runs a call whose arguments match the schema.
///
/// # Errors
/// Those of the tool.
pub(crate) async fn run(tool: Tool, ctx: &CallContext, input: Value) -> Result<Output, ToolError> {
    match tool {
        Tool::ApplyPatch => apply_patch::run(ctx, parse_arguments(input)?).await,
        Tool::Bash => bash::run(ctx, parse_arguments(input)?).await,
        Tool::Batch => batch::run(ctx, parse_arguments(input)?).await,
        Tool::Edit => edit::run(ctx, parse_arguments(input)?).await,
        Tool::Glob => glob::run(ctx, parse_arguments(input)?).await,
        Tool::Grep => grep::run(ctx, parse_arguments(input)?).await,
        Tool::List => list::run(ctx, parse_arguments(input)?).await,
        Tool::MultiEdit => multiedit::run(ctx, parse_arguments(input)?).await,
        Tool::Read => read::run(ctx, parse_arguments(input)?).await,
        Tool::Skill => skill::run(ctx, parse_arguments(input)?).await,
        Tool::Network | Tool::PlanExit | Tool::Question | Tool::Task => {
            Err(ToolError::Model("This call cannot run outside the loop.".to_owned()))
        }
        Tool::TodoRead => todoread::run(ctx).await,
        Tool::TodoWrite => todowrite::run(input),
        Tool::WebFetch => webfetch::run(ctx, parse_arguments(input)?).await,
        Tool::Write => write::run(ctx, parse_arguments(input)?).await,
    }
}

/// The metadata of a call that begins.
pub(crate) fn begun_metadata(tool: Tool) -> Option<Map<String, Value>> {
    (tool == Tool::Bash).then(bash::begun_metadata)
}

/// The effect of a second run of a call.
pub(crate) fn repeat(tool: Tool, input: &Value) -> Repeat {
    match tool {
        // A repeated question is the same question, and a repeated dispatch returns the same child.
        Tool::PlanExit | Tool::Question | Tool::Task => Repeat::Safe,
        Tool::Bash | Tool::Glob | Tool::Grep | Tool::List | Tool::Read | Tool::Skill => Repeat::Safe,
        Tool::Network | Tool::TodoRead | Tool::TodoWrite | Tool::WebFetch => Repeat::Safe,
        Tool::ApplyPatch | Tool::Edit | Tool::MultiEdit | Tool::Write => Repeat::Unknown,
        // Each inner call is checked again when it runs. The answers of finished inner calls are lost with the batch.
        Tool::Batch => {
            let is_unknown = |call: &batch::InnerCall| {
                find(&call.tool).is_ok_and(|tool| repeat(tool, &call.parameters) == Repeat::Unknown)
            };
            if batch::inner_calls(input).iter().any(is_unknown) { Repeat::Unknown } else { Repeat::Safe }
        }
    }
}

/// What the descriptions of some tools list.
pub(crate) struct ToolLists<'a> {
    pub(crate) skills: &'a [rpc::v1::Skill],
    pub(crate) subagents: &'a [(String, String)],
    /// The hosts that people may allow.
    pub(crate) askable_hosts: &'a BTreeSet<&'a str>,
}

/// The tools for the model: all but the hidden ones, and those that have nothing to list.
pub(crate) fn offered(lists: &ToolLists<'_>, is_hidden: impl Fn(Tool) -> bool) -> Vec<tool::Spec> {
    let shown = REGISTRY.iter().filter(|registered| !is_hidden(registered.tool));
    let with_list = |registered: &Registered| {
        let spec = registered.spec.clone();
        match registered.tool {
            Tool::Skill if lists.skills.is_empty() => None,
            Tool::Skill => Some(skill::with_list(spec, lists.skills)),
            Tool::Network if lists.askable_hosts.is_empty() => None,
            Tool::Network => Some(network::with_list(spec, lists.askable_hosts)),
            Tool::Task => Some(task::with_list(spec, lists.subagents)),
            _ => Some(spec),
        }
    };
    shown.filter_map(with_list).collect()
}

/// Every tool as clients see it, including those that a session is not offered.
pub(crate) fn all() -> Vec<tool::Spec> {
    REGISTRY.iter().map(|registered| registered.spec.clone()).collect()
}

/// The stored name of a call of `name`: the tool's own, or that of the stand-in for unknown tools.
pub(crate) fn stored_name(name: &str) -> &'static str {
    find(name).map_or(invalid::NAME, Tool::name)
}

/// Finds a tool by the model's name for it, ignoring case.
///
/// # Errors
/// A sentence for the model with the existing names.
pub(crate) fn find(name: &str) -> Result<Tool, String> {
    Tool::find(name).ok_or_else(|| {
        let names = Tool::ALL.map(Tool::name);
        let name = domain::text::head(name, 80);
        format!("There is no tool {name:?}. The tools are: {}.", names.join(", "))
    })
}

/// Whether a call reaches the network, or changes what it reaches.
pub(crate) fn uses_network(tool: &str) -> bool {
    matches!(find(tool), Ok(Tool::Bash | Tool::Batch | Tool::Network | Tool::WebFetch))
}

/// The exec ids of a call's commands.
pub(crate) fn exec_ids(name: &str, exec_id: &str, input: &Value) -> Vec<String> {
    match find(name) {
        Ok(Tool::Batch) => batch::exec_ids(exec_id, input),
        Ok(_) | Err(_) => vec![exec_id.to_owned()],
    }
}

/// Reads the arguments of a call as the model means them ([`arguments`]), and those of the calls in it.
pub(crate) fn read(tool: Tool, input: Value) -> Value {
    let mut input = read_own(tool, input);
    if tool == Tool::Batch {
        let calls = input.get_mut(batch::CALLS).and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let inner = call.get("tool").and_then(Value::as_str).and_then(|name| find(name).ok());
            if let (Some(inner), Some(parameters)) = (inner, call.get_mut(batch::PARAMETERS)) {
                *parameters = read_own(inner, parameters.take());
            }
        }
    }
    input
}

fn read_own(tool: Tool, input: Value) -> Value {
    match REGISTRY.iter().find(|registered| registered.tool == tool) {
        Some(registered) => arguments::read(&registered.spec.schema, input),
        None => input,
    }
}

/// Validates arguments against the tool's schema. Our own schemas take linear time, so the check needs no other process; only the
/// description of the problems does, whose size the arguments determine.
///
/// # Errors
/// A sentence for the model with the problems and their locations.
pub(crate) async fn check(
    converter: TenantConverter<'_>,
    tool: Tool,
    input: &Value,
) -> Result<(), ToolError> {
    let registered = REGISTRY.iter().find(|registered| registered.tool == tool);
    let Some(Registered { spec, schema: Some(schema), .. }) = registered else { return Ok(()) };
    if schema.is_valid(input) {
        return Ok(());
    }
    let check = SchemaCheck { schema: spec.schema.to_string(), value: Some(input.to_string()) };
    match converter.schema(check).await.map_err(|error| conversion_error(&error))? {
        SchemaVerdict::Match => Ok(()),
        SchemaVerdict::Mismatch(problems) | SchemaVerdict::Unusable(problems) => Err(ToolError::Model(
            format!("The arguments do not fit the tool's schema; nothing was done: {problems}"),
        )),
    }
}

#[cfg(test)]
mod tests;
