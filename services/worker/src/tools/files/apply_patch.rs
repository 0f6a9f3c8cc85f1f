//! `apply_patch`: changes several files at once, with a patch in the format that some models were trained on. It reads
//! every file and computes every change before it writes the first file.

use super::{
    diff::{self, compare},
    path::{absolute, relative},
    write::{load, save},
};
use crate::process::sandbox::is_away;
use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError, UNCERTAIN, conversion_error, sandbox_error},
    spec::tool_spec,
};
use convert_client::{
    patch::{self, Change},
    reply::Diff,
    request::{FilePatch, FileVersions},
};
use domain::policy::tool;
use rpc::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    patch_text: String,
}

/// Maximum files of one patch. A patch with more is refused, and the model reads why.
const FILES_MAX: usize = 100;

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        "apply_patch",
        "Adds, changes, moves and removes files by one patch:\n\
         *** Begin Patch\n*** Add File: path\n+every line of it\n*** Update File: path\n*** Move to: path, if it moves\n\
         @@ a line before the change, such as a function's head\n unchanged line\n-removed line\n+added line\n\
         *** Delete File: path\n*** End Patch\n\
         Quote about three unchanged lines around each change. If a part does not fit, nothing is changed.",
        json!({
            "type": "object",
            "properties": {"patchText": {"type": "string", "minLength": 1, "description": "The whole patch"}},
            "required": ["patchText"],
            "additionalProperties": false
        }),
    )
}

/// Every path that a patch names.
pub(crate) fn paths(input: &Value) -> Vec<String> {
    let text = input.get("patchText").and_then(Value::as_str).unwrap_or_default();
    let of = |change: Change| match change {
        Change::Add { path, .. } | Change::Delete { path } => vec![path],
        Change::Update { path, to, .. } => std::iter::once(path).chain(to).collect(),
    };
    patch::parse(text).map(|changes| changes.into_iter().flat_map(of).collect()).unwrap_or_default()
}

/// A file with its content and hash.
struct TextFile {
    path: String,
    text: String,
    sha256: String,
}

/// The change of one file.
struct Step {
    path: String,
    /// The hash that the file's content must still have; "absent" if the file must not exist.
    expected_sha256: String,
    /// The kind of the change, as OpenCode names it.
    kind: &'static str,
    /// `None`: the file is removed.
    after: Option<String>,
    diff: Diff,
}

/// Describes the change that a call would make, for the person whom the session asks for permission.
pub(crate) async fn preview(ctx: &CallContext, input: Input) -> Result<Map<String, Value>, ToolError> {
    Ok(facts(plan_all(ctx, &input).await?))
}

/// The change of each file.
async fn plan_all(ctx: &CallContext, input: &Input) -> Result<Vec<Step>, ToolError> {
    let changes = patch::parse(&input.patch_text).map_err(nothing_done)?;
    if changes.len() > FILES_MAX {
        return Err(nothing_done(format!("A patch changes at most {FILES_MAX} files.")));
    }
    let mut steps = vec![];
    for change in changes {
        steps.extend(plan(ctx, change).await?);
    }
    Ok(steps)
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let steps = plan_all(ctx, &input).await?;
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = steps.iter().find(|step| !seen.insert(step.path.clone())) {
        return Err(nothing_done(format!("The patch names {} twice.", twice.path)));
    }
    let mut lines: Vec<String> = vec![];
    for step in &steps {
        if let Err(error) = perform(ctx, step).await {
            return Err(half_done(error, step, &lines));
        }
        let word = match step.kind {
            "delete" => "D",
            "add" => "A",
            _ => "M",
        };
        lines.push(format!("{word} {}", step.path));
    }
    Ok(Output {
        title: format!("{} files", lines.len()),
        text: format!("Done:\n{}", lines.join("\n")),
        metadata: facts(steps),
        ..Output::default()
    })
}

fn nothing_done(error: String) -> ToolError {
    ToolError::Model(format!("{error} Nothing was changed."))
}

/// The error if another writer changed a file, or if the sandbox stopped. Earlier changes stay, and the model gets a
/// list of them.
fn half_done(error: ToolError, step: &Step, lines: &[String]) -> ToolError {
    match error {
        ToolError::Model(text) if !lines.is_empty() => ToolError::Model(format!(
            "{}: {text}\nBefore that this was done:\n{}",
            step.path,
            lines.join("\n")
        )),
        other => other,
    }
}

async fn plan(ctx: &CallContext, change: Change) -> Result<Vec<Step>, ToolError> {
    match change {
        Change::Add { path, content } => {
            let path = absolute(&path);
            Ok(vec![added(ctx, path, content).await])
        }
        Change::Delete { path } => Ok(vec![removed(ctx, load_text(ctx, &path).await?).await]),
        Change::Update { path, to, hunks } => {
            let file = load_text(ctx, &path).await?;
            let patch = FilePatch { path: file.path.clone(), before: file.text.clone(), hunks };
            let change = ctx.converter().patch(patch).await.map_err(|error| conversion_error(&error))?;
            let change = change.map_err(nothing_done)?;
            match to.map(|to| absolute(&to)).filter(|to| *to != file.path) {
                None => Ok(vec![Step {
                    kind: if file.text.is_empty() { "add" } else { "update" },
                    path: file.path,
                    expected_sha256: file.sha256,
                    after: Some(change.after),
                    diff: change.diff,
                }]),
                // Write the new path first: if that fails, nothing is lost.
                Some(to) => Ok(vec![added(ctx, to, change.after).await, removed(ctx, file).await]),
            }
        }
    }
}

/// The step that writes a file which does not exist yet.
async fn added(ctx: &CallContext, path: String, content: String) -> Step {
    let versions = FileVersions { path: path.clone(), before: String::new(), after: content.clone() };
    let diff = compare(ctx, versions).await;
    Step { path, expected_sha256: "absent".to_owned(), kind: "add", after: Some(content), diff }
}

/// The step that removes a file.
async fn removed(ctx: &CallContext, file: TextFile) -> Step {
    let TextFile { path, text, sha256 } = file;
    let versions = FileVersions { path: path.clone(), before: text, after: String::new() };
    let diff = compare(ctx, versions).await;
    Step { path, expected_sha256: sha256, kind: "delete", after: None, diff }
}

async fn load_text(ctx: &CallContext, path: &str) -> Result<TextFile, ToolError> {
    let path = absolute(path);
    let file = load(ctx, &path).await.map_err(|error| match error {
        ToolError::Model(text) => nothing_done(format!("{text}.")),
        other => other,
    })?;
    let text = String::from_utf8(file.data);
    let text = text.map_err(|_| nothing_done(format!("{path} is not UTF-8 text.")))?;
    Ok(TextFile { path, text, sha256: file.sha256 })
}

async fn perform(ctx: &CallContext, step: &Step) -> Result<(), ToolError> {
    let (path, expected_sha256) = (step.path.clone(), step.expected_sha256.clone());
    if let Some(after) = &step.after {
        return save(ctx, &path, after.clone().into_bytes(), expected_sha256).await.map(drop);
    }
    let request = v1::RemoveFileRequest { fence: ctx.identity.fence(), path, expected_sha256 };
    // Not retried, like a write.
    ctx.deps.sandbox.client().remove_file(request).await.map(drop).map_err(|status| {
        if is_away(&status) { ToolError::Model(UNCERTAIN.to_owned()) } else { sandbox_error(&status) }
    })
}

/// The names of all files and their diffs, each as one text, with the counts.
fn facts(steps: Vec<Step>) -> Map<String, Value> {
    let paths: Vec<String> = steps.iter().map(|step| relative(&step.path)).collect();
    let (mut facts, mut files) = (Map::new(), vec![]);
    for Step { path, kind, diff, .. } in steps {
        files.push(json!({
            "type": kind, "filePath": path, "relativePath": relative(&path), "patch": diff.text,
            "additions": diff.additions, "deletions": diff.deletions,
        }));
        for (key, value) in diff::facts(diff) {
            let sum = match (facts.remove(&key), value) {
                (Some(Value::String(all)), Value::String(one)) => Value::from(all + &one),
                (Some(Value::Number(all)), Value::Number(one)) => {
                    Value::from(all.as_u64().unwrap_or(0) + one.as_u64().unwrap_or(0))
                }
                (_, value) => value,
            };
            facts.insert(key, sum);
        }
    }
    facts.insert("filepath".to_owned(), paths.join(", ").into());
    facts.insert("files".to_owned(), files.into());
    facts.insert("diagnostics".to_owned(), json!({}));
    facts
}
