//! The change of files that a call would make, for the person whom the session asks for permission. A batch makes the changes of all
//! its calls.

use super::{
    apply_patch,
    diff::{compare, merged, proposed_change},
    edit, multiedit, write,
};
use crate::tools::{batch, context::CallContext, outcome::ToolError, spec::parse_arguments, tool::Tool};
use convert_client::{reply::Diff, request::FileVersions};
use serde_json::{Map, Value};

/// A call that changes files without a shell.
pub(crate) struct FileCall {
    tool: Tool,
    input: Value,
}

/// What a call would do to files.
#[derive(Debug, PartialEq)]
pub(crate) enum Preview {
    /// It would make this change.
    Change(Map<String, Value>),
    Failure(PlannedFailure),
}

/// The failure of a call that was not made.
#[derive(Debug, PartialEq)]
pub(crate) struct PlannedFailure {
    /// The answer for the model. It may tell what the files have.
    pub(crate) answer: String,
    /// The files that the call names.
    pub(crate) paths: Vec<String>,
    /// The change that the arguments of the call tell.
    pub(crate) written: Map<String, Value>,
}

/// The calls that change files: the call itself, or those inside a batch.
pub(crate) fn file_calls(tool: Tool, input: &Value) -> Vec<FileCall> {
    match tool {
        Tool::ApplyPatch | Tool::Edit | Tool::MultiEdit | Tool::Write => {
            vec![FileCall { tool, input: input.clone() }]
        }
        Tool::Batch => {
            let inner = batch::inner_calls(input).into_iter();
            let inner = inner.filter_map(|call| Some((Tool::find(&call.tool)?, call.parameters)));
            inner
                .filter(|(tool, _)| *tool != Tool::Batch)
                .flat_map(|(tool, input)| file_calls(tool, &input))
                .collect()
        }
        Tool::Bash | Tool::Glob | Tool::Grep | Tool::List | Tool::PlanExit | Tool::Question => vec![],
        Tool::Read
        | Tool::Skill
        | Tool::Task
        | Tool::TodoRead
        | Tool::TodoWrite
        | Tool::Network
        | Tool::WebFetch => vec![],
    }
}

/// Describes the changes to the files as they are. If one of several calls would fail, the description tells what its arguments tell: the others may
/// still succeed.
pub(crate) async fn of_files(ctx: &CallContext, calls: &[FileCall]) -> Preview {
    let mut changes = vec![];
    for call in calls {
        match planned(ctx, call).await {
            Ok(change) => changes.push(change),
            Err(ToolError::Model(answer)) if calls.len() == 1 => {
                let paths = versions(call).unwrap_or_default().into_iter().map(|version| version.path);
                let paths = paths.collect();
                let written = merged(written(ctx, call).await.into_iter());
                return Preview::Failure(PlannedFailure { answer, paths, written });
            }
            Err(_) => changes.extend(written(ctx, call).await),
        }
    }
    Preview::Change(merged(changes.into_iter()))
}

/// Describes the changes as far as the arguments of the calls tell them.
pub(crate) async fn of_arguments(ctx: &CallContext, calls: &[FileCall]) -> Map<String, Value> {
    let mut changes = vec![];
    for call in calls {
        changes.extend(written(ctx, call).await);
    }
    merged(changes.into_iter())
}

/// The files of the changes, without the changes.
pub(crate) fn names(calls: &[FileCall]) -> Map<String, Value> {
    let versions = calls.iter().filter_map(versions).flatten();
    merged(versions.map(|versions| proposed_change(&versions.path, Diff::default())))
}

/// The change that a call would make, or how it would fail.
async fn planned(ctx: &CallContext, call: &FileCall) -> Result<Map<String, Value>, ToolError> {
    let input = call.input.clone();
    match call.tool {
        Tool::ApplyPatch => apply_patch::preview(ctx, parse_arguments(input)?).await,
        Tool::Edit => edit::preview(ctx, parse_arguments(input)?).await,
        Tool::MultiEdit => multiedit::preview(ctx, parse_arguments(input)?).await,
        Tool::Write => write::preview(ctx, parse_arguments(input)?).await,
        Tool::Bash | Tool::Batch | Tool::Glob | Tool::Grep | Tool::List | Tool::PlanExit => Ok(Map::new()),
        Tool::Question | Tool::Read | Tool::Skill | Tool::Task | Tool::TodoRead => Ok(Map::new()),
        Tool::TodoWrite | Tool::Network | Tool::WebFetch => Ok(Map::new()),
    }
}

/// The changes that the arguments of a call tell.
async fn written(ctx: &CallContext, call: &FileCall) -> Vec<Map<String, Value>> {
    let mut changes = vec![];
    for versions in versions(call).unwrap_or_default() {
        let path = versions.path.clone();
        changes.push(proposed_change(&path, compare(ctx, versions).await));
    }
    changes
}

fn versions(call: &FileCall) -> Option<Vec<FileVersions>> {
    let input = call.input.clone();
    match call.tool {
        Tool::ApplyPatch => Some(apply_patch::written(&parse_arguments(input).ok()?)),
        Tool::Edit => Some(edit::written(parse_arguments(input).ok()?)),
        Tool::MultiEdit => Some(multiedit::written(parse_arguments(input).ok()?)),
        Tool::Write => Some(write::written(parse_arguments(input).ok()?)),
        Tool::Bash | Tool::Batch | Tool::Glob | Tool::Grep | Tool::List | Tool::PlanExit => None,
        Tool::Question | Tool::Read | Tool::Skill | Tool::Task | Tool::TodoRead => None,
        Tool::TodoWrite | Tool::Network | Tool::WebFetch => None,
    }
}
