//! Marks in the metadata of a tool call, which tell every worker what was decided about it.

use domain::conversation::part::ToolState;
use serde_json::{Map, Value};

/// The metadata key of a call that a person rejected without telling the model what to do instead.
const REJECTED: &str = "refused";
/// The metadata key of a repeated call, and the name of the permission to repeat it: OpenCode's.
pub(crate) const REPETITION: &str = "doom_loop";

/// The argument that holds the text of a call whose arguments are not a JSON object. Anthropic recommends this form for all
/// such calls: a model recognizes its own mistake in it.
/// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/fine-grained-tool-streaming>
pub(crate) const UNREADABLE: &str = "INVALID_JSON";

/// The decision about a model that repeats the same call with the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    Allowed,
    /// A person is being asked.
    Pending,
    /// The question is settled or no longer relevant.
    Over,
}

impl Repetition {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Pending => "asked",
            Self::Over => "over",
        }
    }
}

/// The metadata of a call that a person rejected without a message.
pub(crate) fn rejected() -> Map<String, Value> {
    Map::from_iter([(REJECTED.to_owned(), true.into())])
}

/// Whether a person rejected a call without telling the model what to do instead.
pub(crate) fn is_rejected(state: &ToolState) -> bool {
    matches!(state, ToolState::Error { metadata: Some(metadata), .. } if metadata.contains_key(REJECTED))
}

/// Whether a call carries this mark.
pub(crate) fn is_marked(state: &ToolState, mark: Repetition) -> bool {
    let metadata = match state {
        ToolState::Completed { metadata, .. } => Some(metadata),
        ToolState::Error { metadata, .. } => metadata.as_ref(),
        ToolState::Pending { .. } | ToolState::Running { .. } => None,
    };
    metadata.and_then(|metadata| metadata.get(REPETITION)).and_then(Value::as_str) == Some(mark.as_str())
}

/// Whether the arguments of a call could not be read.
pub(crate) fn is_unreadable(input: &Value) -> bool {
    input.get(UNREADABLE).is_some() || input.pointer(&format!("/arguments/{UNREADABLE}")).is_some()
}

/// Marks a call that has ended.
pub(crate) fn with_mark(mut state: ToolState, mark: Repetition) -> ToolState {
    let metadata = match &mut state {
        ToolState::Completed { metadata, .. } => metadata,
        ToolState::Error { metadata, .. } => metadata.get_or_insert_default(),
        ToolState::Pending { .. } | ToolState::Running { .. } => return state,
    };
    metadata.insert(REPETITION.to_owned(), mark.as_str().into());
    state
}
