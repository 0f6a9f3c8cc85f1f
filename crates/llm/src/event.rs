//! The events of a model's answer while it streams, independent of the provider.

use domain::money::Tokens;

/// One event of an answer.
///
/// Order: `Started`, then blocks and `Usage` in any order, then exactly one `Finished` or an error instead. A `…Start`
/// event opens a block. `BlockEnd` closes a text or a tool call, `ReasoningEnd` closes reasoning. An error may leave
/// blocks open. `index` is unique in the answer and grows in the order in which blocks start. Blocks may overlap: some
/// providers interleave tool calls.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The provider accepted the call.
    Started {
        /// The answering model as the provider names it. It may be more specific than the requested one, or empty.
        model: String,
    },
    TextStart {
        /// Block.
        index: u32,
    },
    /// More of a text; never empty.
    Text {
        /// Block.
        index: u32,
        delta: String,
    },
    ReasoningStart {
        /// Block.
        index: u32,
    },
    /// More reasoning; never empty.
    Reasoning {
        /// Block.
        index: u32,
        delta: String,
    },
    /// A reasoning block ends, with the data that the provider needs to get it back.
    ReasoningEnd {
        /// Block.
        index: u32,
        signature: Option<String>,
        redacted: Option<String>,
        /// An array of what other providers need back: OpenRouter's `reasoning_details`, the reasoning item of OpenAI
        /// Responses, Gemini's thought signatures. Each element has a `type` that only its own protocol understands.
        details: Option<serde_json::Value>,
    },
    ToolStart {
        /// Block.
        index: u32,
        /// The provider's id of the call; unique in the answer.
        id: String,
        /// The tool; empty if the provider did not name it.
        name: String,
    },
    /// More of a tool call's arguments (JSON text); never empty.
    ToolArguments {
        /// Block.
        index: u32,
        delta: String,
    },
    /// A text or a tool call ends.
    BlockEnd {
        /// Block.
        index: u32,
        /// What the provider needs to get a text back, in the form of [`Event::ReasoningEnd`]'s: the identity of an
        /// OpenAI Responses message.
        details: Option<serde_json::Value>,
    },
    /// The total tokens of this answer so far. Each event replaces the one before.
    Usage(Tokens),
    /// The answer is complete. No event follows.
    Finished {
        /// Why the model stopped. `ToolCalls` if and only if the answer was not cut and has tool calls: the words of
        /// providers differ too much.
        reason: Finish,
        /// The reason in the provider's word.
        raw: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model finished its answer.
    Stop,
    /// The model waits for tool results.
    ToolCalls,
    /// The answer reached the length limit; the last block is cut off.
    Length,
    /// The provider's content filter stopped the answer.
    ContentFilter,
    /// A reason that Flotilla does not know.
    Other,
}

impl Finish {
    /// OpenCode's word: `stop`, `tool-calls`, `length`, `content-filter` or `other`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool-calls",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::Other => "other",
        }
    }

    /// Whether an answer with this reason may end in the middle of a tool call.
    pub fn is_cut(self) -> bool {
        match self {
            Self::Length | Self::ContentFilter => true,
            Self::Stop | Self::ToolCalls | Self::Other => false,
        }
    }
}
