//! The tools of the agent: what the model is told of them, and how a call is checked before it runs. Each has a file.
// Continues in `tools::run`, which runs calls, and in one file for each tool, for example `tools::bash`.

pub(crate) mod apply_patch;
pub(crate) mod bash;
pub(crate) mod batch;
pub(crate) mod edit;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod invalid;
pub(crate) mod list;
pub(crate) mod media;
pub(crate) mod multiedit;
pub(crate) mod output;
pub(crate) mod patch;
pub(crate) mod plan_exit;
pub(crate) mod question;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod skill;
pub(crate) mod task;
pub(crate) mod todoread;
pub(crate) mod todowrite;
pub(crate) mod uses;
pub(crate) mod webfetch;
pub(crate) mod write;

use domain::part::attached::File;
use domain::tool;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// One of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    ApplyPatch,
    Bash,
    Batch,
    Edit,
    Glob,
    Grep,
    List,
    MultiEdit,
    PlanExit,
    Question,
    Read,
    Skill,
    Task,
    TodoRead,
    TodoWrite,
    WebFetch,
    Write,
}

/// Who performs a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Performer {
    /// A task beside the loop, by way of the sandbox.
    Task,
    /// The loop itself: it asks somebody else and parks.
    Loop,
}

/// What a second run of a call would mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// No second effect: nothing is changed, or the sandbox runs it once and is attached to.
    Safe,
    /// Nobody knows whether it ran: the model is told so.
    Unknown,
}

/// Why a call has no ordinary answer.
#[derive(Debug)]
pub(crate) enum ToolError {
    /// Told to the model; the turn goes on.
    Model(String),
    /// Ends the turn.
    Broken(domain::message::Error),
    /// Another worker owns the session.
    Fenced,
}

/// An answer for the model, with facts for clients.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Output {
    /// What it did, in a few words.
    pub(crate) title: String,
    /// What the model reads.
    pub(crate) text: String,
    /// Exit code, diff, counts.
    pub(crate) metadata: Map<String, Value>,
    /// The new list of things to do.
    pub(crate) todos: Option<Value>,
    /// Pictures and documents, with their bytes.
    pub(crate) media: Vec<File>,
}

struct Known {
    tool: Tool,
    spec: tool::Spec,
    check: Option<jsonschema::Validator>,
}

/// Sorted by name: a stable list keeps the provider's cache warm.
const ALL: [Tool; 17] = [
    Tool::ApplyPatch,
    Tool::Bash,
    Tool::Batch,
    Tool::Edit,
    Tool::Glob,
    Tool::Grep,
    Tool::List,
    Tool::MultiEdit,
    Tool::PlanExit,
    Tool::Question,
    Tool::Read,
    Tool::Skill,
    Tool::Task,
    Tool::TodoRead,
    Tool::TodoWrite,
    Tool::WebFetch,
    Tool::Write,
];

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    ALL.iter()
        .map(|tool| {
            let spec = tool.spec();
            let check = jsonschema::validator_for(&spec.schema).ok();
            Known { tool: *tool, spec, check }
        })
        .collect()
});

impl Tool {
    fn spec(self) -> tool::Spec {
        match self {
            Self::ApplyPatch => apply_patch::spec(),
            Self::Bash => bash::spec(),
            Self::Batch => batch::spec(),
            Self::Edit => edit::spec(),
            Self::Glob => glob::spec(),
            Self::Grep => grep::spec(),
            Self::List => list::spec(),
            Self::MultiEdit => multiedit::spec(),
            Self::PlanExit => plan_exit::spec(),
            Self::Question => question::spec(),
            Self::Read => read::spec(),
            Self::Skill => skill::spec(),
            Self::Task => task::spec(),
            Self::TodoRead => todoread::spec(),
            Self::TodoWrite => todowrite::spec(),
            Self::WebFetch => webfetch::spec(),
            Self::Write => write::spec(),
        }
    }

    pub(crate) fn repeat(self, input: &Value) -> Repeat {
        match self {
            // Asking again is the same question, and dispatching again the same child.
            Self::PlanExit | Self::Question | Self::Task => Repeat::Safe,
            Self::Bash | Self::Glob | Self::Grep | Self::List | Self::Read | Self::Skill => Repeat::Safe,
            Self::TodoRead | Self::TodoWrite | Self::WebFetch => Repeat::Safe,
            Self::ApplyPatch | Self::Edit | Self::MultiEdit | Self::Write => Repeat::Unknown,
            // Each of its calls is asked when it runs; the answer of one that is done is lost with the batch.
            Self::Batch => batch::repeat(input),
        }
    }

    pub(crate) fn performer(self) -> Performer {
        match self {
            Self::PlanExit | Self::Question | Self::Task => Performer::Loop,
            Self::ApplyPatch
            | Self::Bash
            | Self::Batch
            | Self::Edit
            | Self::Glob
            | Self::Grep
            | Self::List
            | Self::MultiEdit
            | Self::Read
            | Self::Skill
            | Self::TodoRead
            | Self::TodoWrite
            | Self::WebFetch
            | Self::Write => Performer::Task,
        }
    }

    /// Whether files may be others after it: also by way of those whom it asks.
    pub(crate) fn changes_files(self) -> bool {
        match self {
            Self::ApplyPatch | Self::Bash | Self::Batch | Self::Edit | Self::MultiEdit => true,
            Self::Task | Self::Write => true,
            Self::Glob | Self::Grep | Self::List | Self::Question | Self::Read | Self::Skill => false,
            Self::PlanExit | Self::TodoRead | Self::TodoWrite | Self::WebFetch => false,
        }
    }

    /// Its name in calls.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ApplyPatch => "apply_patch",
            Self::Bash => "bash",
            Self::Batch => "batch",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::List => "list",
            Self::MultiEdit => "multiedit",
            Self::PlanExit => "plan_exit",
            Self::Question => "question",
            Self::Read => "read",
            Self::Skill => "skill",
            Self::Task => "task",
            Self::TodoRead => "todoread",
            Self::TodoWrite => "todowrite",
            Self::WebFetch => "webfetch",
            Self::Write => "write",
        }
    }

    pub(crate) async fn run(self, ctx: &run::Ctx, input: Value) -> Result<Output, ToolError> {
        match self {
            Self::ApplyPatch => apply_patch::run(ctx, parse(input)?).await,
            Self::Bash => bash::run(ctx, parse(input)?).await,
            Self::Batch => batch::run(ctx, parse(input)?).await,
            Self::Edit => edit::run(ctx, parse(input)?).await,
            Self::Glob => glob::run(ctx, parse(input)?).await,
            Self::Grep => grep::run(ctx, parse(input)?).await,
            Self::List => list::run(ctx, parse(input)?).await,
            Self::MultiEdit => multiedit::run(ctx, parse(input)?).await,
            Self::Read => read::run(ctx, parse(input)?).await,
            Self::Skill => skill::run(ctx, parse(input)?).await,
            Self::PlanExit | Self::Question | Self::Task => {
                Err(ToolError::Model("This call cannot run beside the loop.".to_owned()))
            }
            Self::TodoRead => todoread::run(ctx).await,
            Self::TodoWrite => todowrite::run(input),
            Self::WebFetch => webfetch::run(ctx, parse(input)?).await,
            Self::Write => write::run(ctx, parse(input)?).await,
        }
    }
}

/// What the model is told of all tools but the hidden ones. Where there are no skills, there is no tool for them.
pub(crate) fn specs(
    skills: &[rpc::v1::Skill],
    subagents: &[(String, String)],
    is_hidden: impl Fn(Tool) -> bool,
) -> Vec<tool::Spec> {
    let is_shown =
        |known: &&Known| !is_hidden(known.tool) && (known.tool != Tool::Skill || !skills.is_empty());
    let spec = |known: &Known| match known.tool {
        Tool::Skill => skill::with_list(known.spec.clone(), skills),
        Tool::Task => task::with_list(known.spec.clone(), subagents),
        _ => known.spec.clone(),
    };
    KNOWN.iter().filter(is_shown).map(spec).collect()
}

/// What clients are told of all tools, whichever a session is shown.
pub(crate) fn all() -> Vec<tool::Spec> {
    KNOWN.iter().map(|known| known.spec.clone()).collect()
}

/// The name under which a call of `name` is stored: the tool's own, or that of what answers calls of no tool.
pub(crate) fn stored_name(name: &str) -> &'static str {
    find(name).map_or(invalid::NAME, Tool::name)
}

/// Finds a tool by the name that the model used; other cases are forgiven.
///
/// # Errors
/// A sentence for the model, with the names that exist.
pub(crate) fn find(name: &str) -> Result<Tool, String> {
    let found = KNOWN.iter().find(|known| known.spec.name.eq_ignore_ascii_case(name));
    found.map(|known| known.tool).ok_or_else(|| {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.spec.name.as_str()).collect();
        let name = domain::text::head(name, 80);
        format!("There is no tool {name:?}. The tools are: {}.", names.join(", "))
    })
}

/// The tools that a call would use beside its own.
pub(crate) fn inner(tool: Tool, input: &Value) -> Vec<Tool> {
    if tool == Tool::Batch { batch::tools(input) } else { vec![] }
}

/// The names under which the sandbox knows the commands of a call.
pub(crate) fn execs(name: &str, exec_id: &str, input: &Value) -> Vec<String> {
    match find(name) {
        Ok(Tool::Batch) => batch::exec_ids(exec_id, input),
        Ok(_) | Err(_) => vec![exec_id.to_owned()],
    }
}

/// Checks arguments against the tool's schema.
///
/// # Errors
/// A sentence for the model: what is wrong, and where.
pub(crate) fn check(tool: Tool, input: &Value) -> Result<(), ToolError> {
    let Some(check) = KNOWN.iter().find(|known| known.tool == tool).and_then(|known| known.check.as_ref())
    else {
        return Ok(());
    };
    let problems: Vec<String> = check
        .iter_errors(input)
        .take(PROBLEMS_MAX)
        .map(|problem| {
            domain::text::head(&format!("{} (at {:?})", problem, problem.instance_path().as_str()), 300)
                .to_owned()
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(ToolError::Model(format!(
        "The arguments do not fit the tool's schema; nothing was done: {}",
        problems.join("; ")
    )))
}

/// Problems of one call that the model is told.
const PROBLEMS_MAX: usize = 5;

fn parse<T: serde::de::DeserializeOwned>(input: Value) -> Result<T, ToolError> {
    serde_json::from_value(input)
        .map_err(|error| ToolError::Model(format!("The arguments cannot be read: {error}")))
}

/// A tool's description and schema.
fn described(name: &str, description: &str, schema: Value) -> tool::Spec {
    tool::Spec { name: name.to_owned(), description: description.to_owned(), schema }
}

#[cfg(test)]
mod tests;
