//! What a model's answer consists of while it streams, in no provider's words.

use domain::money::Tokens;

/// One event of an answer.
///
/// Order: `Started`, then blocks and `Usage` in any mixture, then `Finished` exactly once, or an error in its place.
/// A block is opened by its `…Start`, and closed by `BlockEnd` (text, tool call) or `ReasoningEnd` (reasoning); an
/// error may leave blocks open. `index` is unique in the answer and grows in the order in which blocks start; blocks
/// may overlap (tool calls of some providers are interleaved).
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The provider accepted the call.
    Started {
        /// The model that answers, in the provider's words; may be more exact than the one asked for, or empty.
        model: String,
    },
    /// A text begins.
    TextStart {
        /// Block.
        index: u32,
    },
    /// More of a text; never empty.
    Text {
        /// Block.
        index: u32,
        /// What to append.
        delta: String,
    },
    /// Reasoning begins.
    ReasoningStart {
        /// Block.
        index: u32,
    },
    /// More reasoning; never empty.
    Reasoning {
        /// Block.
        index: u32,
        /// What to append.
        delta: String,
    },
    /// Reasoning ends, with what must be kept to send it back.
    ReasoningEnd {
        /// Block.
        index: u32,
        /// Anthropic's signature.
        signature: Option<String>,
        /// Anthropic's encrypted reasoning.
        redacted: Option<String>,
        /// An array of what other providers want back: OpenRouter's `reasoning_details`, the reasoning item of OpenAI
        /// Responses, Gemini's thought signatures. Each element has a `type` that only its own protocol knows.
        details: Option<serde_json::Value>,
    },
    /// A tool call begins.
    ToolStart {
        /// Block.
        index: u32,
        /// The provider's id of the call; unique in the answer.
        id: String,
        /// The tool; empty if the provider never named it.
        name: String,
    },
    /// More of a tool call's arguments (JSON text); never empty.
    ToolArguments {
        /// Block.
        index: u32,
        /// What to append.
        delta: String,
    },
    /// A text or a tool call ends.
    BlockEnd {
        /// Block.
        index: u32,
    },
    /// All tokens of this answer so far: each one replaces the one before.
    Usage(Tokens),
    /// The answer is whole. Nothing follows.
    Finished {
        /// Why the model stopped.
        reason: Finish,
        /// The same in the provider's word.
        raw: String,
    },
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It said all it wanted.
    Stop,
    /// It waits for tools.
    ToolCalls,
    /// It reached the longest answer; the last block is cut.
    Length,
    /// The provider's filter stopped it.
    ContentFilter,
    /// A reason that this client does not know.
    Unknown,
}

impl Finish {
    /// OpenCode's word: `stop`, `tool-calls`, `length`, `content-filter` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool-calls",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::Unknown => "unknown",
        }
    }

    /// Whether an answer that ended so may have been cut inside a tool call.
    pub fn is_cut(self) -> bool {
        match self {
            Self::Length | Self::ContentFilter => true,
            Self::Stop | Self::ToolCalls | Self::Unknown => false,
        }
    }
}
