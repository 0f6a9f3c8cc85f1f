//! `apply_patch`: changes several files at once, with a patch in the format that some models were trained on. It reads
//! every file and computes every change before it writes the first file.

use super::{
    diff::{self, compare},
    edit::inexact_note,
    write::{load, save},
};
use crate::{
    process::sandbox::is_away,
    tools::{
        context::CallContext,
        outcome::{Output, ToolError, UNCERTAIN, conversion_error, sandbox_error},
        path::{absolute, relative},
        spec::tool_spec,
    },
};
use convert_client::{
    patch::{self, Change},
    reply::{self, Diff},
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

/// The change of one file, which may move it.
struct Step {
    path: String,
    /// The new path, if the file moves.
    moves_to: Option<String>,
    kind: Kind,
    /// In this order: a moved file is written first, so nothing is lost if that fails.
    writes: Vec<Write>,
    diff: Diff,
    /// The lines that the patch quoted inexactly, in the file after the change.
    inexact_lines: Vec<usize>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Add,
    Update,
    Move,
    Delete,
}

impl Kind {
    /// OpenCode's name.
    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Move => "move",
            Self::Delete => "delete",
        }
    }

    /// The letter before the path in the answer.
    fn letter(self) -> char {
        match self {
            Self::Add => 'A',
            Self::Update | Self::Move => 'M',
            Self::Delete => 'D',
        }
    }
}

/// A file that is written or removed.
struct Write {
    path: String,
    /// The hash that the file's content must still have; "absent" if the file must not exist.
    expected_sha256: String,
    /// `None`: the file is removed.
    after: Option<String>,
}

/// Describes the change that a call would make, for the person whom the session asks for permission.
pub(crate) async fn preview(ctx: &CallContext, input: Input) -> Result<Map<String, Value>, ToolError> {
    Ok(facts(plan_all(ctx, &input).await?))
}

/// The change that the arguments of a call tell, without the files.
pub(super) fn written(input: &Input) -> Vec<FileVersions> {
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let versions = |path: &str, before, after| FileVersions { path: path.to_owned(), before, after };
    let of = |change| match change {
        Change::Add { path, content } => vec![versions(&path, String::new(), content)],
        Change::Delete { path } => vec![versions(&path, String::new(), String::new())],
        Change::Update { path, to, hunks } => {
            let target = to.as_ref().unwrap_or(&path);
            let moved = to.iter().map(|_| versions(&path, String::new(), String::new()));
            let hunks = hunks.iter().map(|hunk| versions(target, lines(&hunk.old), lines(&hunk.new)));
            moved.chain(hunks).collect()
        }
    };
    patch::parse(&input.patch_text)
        .map(|changes| changes.into_iter().flat_map(of).collect())
        .unwrap_or_default()
}

/// The change of each file.
async fn plan_all(ctx: &CallContext, input: &Input) -> Result<Vec<Step>, ToolError> {
    let changes = patch::parse(&input.patch_text).map_err(nothing_done)?;
    if changes.len() > FILES_MAX {
        return Err(nothing_done(format!("A patch changes at most {FILES_MAX} files.")));
    }
    let mut steps = vec![];
    for change in changes {
        steps.push(plan(ctx, change).await?);
    }
    Ok(steps)
}

pub(crate) async fn run(ctx: &CallContext, input: Input) -> Result<Output, ToolError> {
    let steps = plan_all(ctx, &input).await?;
    let mut seen = std::collections::BTreeSet::new();
    let mut writes = steps.iter().flat_map(|step| &step.writes);
    if let Some(twice) = writes.find(|write| !seen.insert(write.path.clone())) {
        return Err(nothing_done(format!("The patch names {} twice.", twice.path)));
    }
    let mut lines: Vec<String> = vec![];
    for step in &steps {
        let mut written: Vec<String> = vec![];
        for write in &step.writes {
            if let Err(error) = perform(ctx, write).await {
                lines.extend(written);
                return Err(half_done(error, write, &lines));
            }
            written.push(format!("A {}", write.path));
        }
        let path = step.moves_to.as_ref().unwrap_or(&step.path);
        lines.push(format!("{} {path}{}", step.kind.letter(), inexact_note(&step.inexact_lines)));
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
fn half_done(error: ToolError, write: &Write, lines: &[String]) -> ToolError {
    match error {
        ToolError::Model(text) if !lines.is_empty() => ToolError::Model(format!(
            "{}: {text}\nBefore that this was done:\n{}",
            write.path,
            lines.join("\n")
        )),
        other => other,
    }
}

async fn plan(ctx: &CallContext, change: Change) -> Result<Step, ToolError> {
    match change {
        Change::Add { path, content } => {
            let path = absolute(&path);
            let versions = FileVersions { path: path.clone(), before: String::new(), after: content.clone() };
            let diff = compare(ctx, versions).await;
            let writes = vec![Write::new_file(&path, content)];
            Ok(Step { path, moves_to: None, kind: Kind::Add, writes, diff, inexact_lines: vec![] })
        }
        Change::Delete { path } => {
            let TextFile { path, text, sha256 } = load_text(ctx, &path).await?;
            let versions = FileVersions { path: path.clone(), before: text, after: String::new() };
            let diff = compare(ctx, versions).await;
            let writes = vec![Write { path: path.clone(), expected_sha256: sha256, after: None }];
            Ok(Step { path, moves_to: None, kind: Kind::Delete, writes, diff, inexact_lines: vec![] })
        }
        Change::Update { path, to, hunks } => {
            let file = load_text(ctx, &path).await?;
            let patch = FilePatch { path: file.path.clone(), before: file.text.clone(), hunks };
            let change = ctx.converter().patch(patch).await.map_err(|error| conversion_error(&error))?;
            let reply::Change { after, diff, inexact_lines } = change.map_err(nothing_done)?;
            let moves_to = to.map(|to| absolute(&to)).filter(|to| *to != file.path);
            let writes = match &moves_to {
                None => {
                    let (path, expected_sha256) = (file.path.clone(), file.sha256);
                    vec![Write { path, expected_sha256, after: Some(after) }]
                }
                Some(to) => {
                    let removed =
                        Write { path: file.path.clone(), expected_sha256: file.sha256, after: None };
                    vec![Write::new_file(to, after), removed]
                }
            };
            let kind = if moves_to.is_some() { Kind::Move } else { Kind::Update };
            Ok(Step { path: file.path, moves_to, kind, writes, diff, inexact_lines })
        }
    }
}

impl Write {
    /// Writes a file which does not exist yet.
    fn new_file(path: &str, content: String) -> Self {
        Self { path: path.to_owned(), expected_sha256: "absent".to_owned(), after: Some(content) }
    }
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

async fn perform(ctx: &CallContext, write: &Write) -> Result<(), ToolError> {
    let (path, expected_sha256) = (write.path.clone(), write.expected_sha256.clone());
    if let Some(after) = &write.after {
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
    let mut facts = diff::merged(steps.into_iter().map(step_facts));
    facts.insert("diagnostics".to_owned(), json!({}));
    facts
}

fn step_facts(step: Step) -> Map<String, Value> {
    let Step { path, moves_to, kind, diff, .. } = step;
    let names: Vec<String> = std::iter::once(&path).chain(&moves_to).map(|path| relative(path)).collect();
    let mut file = json!({
        "type": kind.name(), "filePath": path, "relativePath": relative(moves_to.as_ref().unwrap_or(&path)),
        "patch": diff.text, "additions": diff.additions, "deletions": diff.deletions,
    });
    if let (Some(to), Some(members)) = (moves_to, file.as_object_mut()) {
        members.insert("movePath".to_owned(), to.into());
    }
    let mut facts = diff::facts(diff);
    facts.insert("filepath".to_owned(), names.join(", ").into());
    facts.insert("files".to_owned(), json!([file]));
    facts
}
