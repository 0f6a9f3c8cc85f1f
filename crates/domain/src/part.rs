//! Parts in OpenCode's JSON shape: the pieces of a message.

use crate::{
    ids::{MessageId, PartId, SessionId, Timestamp},
    message::{Error, dollars},
    money::{Tokens, UsdPicos},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One piece of a message.
///
/// ```json
/// {"id":"prt_…","sessionID":"ses_…","messageID":"msg_…","type":"text","text":"Hello","time":{"start":1,"end":2}}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its id; ascending inside a message.
    pub id: PartId,
    /// Whose conversation.
    #[serde(rename = "sessionID")]
    pub session_id: SessionId,
    /// Which message.
    #[serde(rename = "messageID")]
    pub message_id: MessageId,
    /// What it is.
    #[serde(flatten)]
    pub body: Body,
}

/// The kinds of pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Body {
    /// What was said.
    Text(Text),
    /// What the model thought.
    Reasoning(Reasoning),
    /// A tool call with its state.
    Tool(Tool),
    /// A model call begins.
    StepStart {},
    /// A model call and its tools are over.
    StepFinish(StepFinish),
    /// A model call failed and is tried again.
    Retry(Retry),
}

impl Body {
    /// The value of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Tool(_) => "tool",
            Self::StepStart {} => "step-start",
            Self::StepFinish(_) => "step-finish",
            Self::Retry(_) => "retry",
        }
    }
}

/// Start and, when over, end; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

/// Said by a person or the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Text {
    /// The words.
    pub text: String,
    /// Whether we wrote it, not a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Whether it is not shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<bool>,
    /// When it was streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

/// Thought by the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The words; empty when redacted.
    pub text: String,
    /// When it was streamed.
    pub time: Span,
    /// The provider's signature or opaque data, sent back only to the same provider and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The provider's id of the call.
    #[serde(rename = "callID")]
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// How far it is.
    pub state: ToolState,
}

/// How far a tool call is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ToolState {
    /// Asked for; not begun.
    Pending {
        /// The arguments; empty until they are complete.
        input: Value,
        /// The arguments as the model wrote them.
        raw: String,
    },
    /// Begun: its intent is stored, its effect may have happened.
    Running {
        /// The arguments.
        input: Value,
        /// What it does, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Live facts, such as the newest output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        /// When it began.
        time: Span,
    },
    /// Over, with an answer for the model.
    Completed {
        /// The arguments.
        input: Value,
        /// The answer.
        output: String,
        /// What it did, for people.
        title: String,
        /// Facts for clients: exit code, diff, counts.
        metadata: Map<String, Value>,
        /// When it ran.
        time: Span,
    },
    /// Over, with an error for the model.
    Error {
        /// The arguments.
        input: Value,
        /// What is told to the model.
        error: String,
        /// Facts for clients.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Map<String, Value>>,
        /// When it ran.
        time: Span,
    },
}

impl ToolState {
    /// The arguments.
    pub fn input(&self) -> &Value {
        match self {
            Self::Pending { input, .. }
            | Self::Running { input, .. }
            | Self::Completed { input, .. }
            | Self::Error { input, .. } => input,
        }
    }

    /// Whether there is an answer for the model.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Error { .. } => true,
            Self::Pending { .. } | Self::Running { .. } => false,
        }
    }
}

/// A model call is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFinish {
    /// `stop`, `tool-calls`, `length`, `content-filter`, `unknown`.
    pub reason: String,
    /// Exact cost; dollars in JSON.
    #[serde(with = "dollars")]
    pub cost: UsdPicos,
    /// Tokens of this step.
    pub tokens: Tokens,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Which one, from 1.
    pub attempt: u32,
    /// Why it failed.
    pub error: Error,
    /// When.
    pub time: RetryTime,
}

/// When an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryTime {
    /// Milliseconds since 1970.
    pub created: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(json: Value) {
        let part: Part = serde_json::from_value(json.clone()).expect("a part");
        assert_eq!(serde_json::to_value(part).expect("json"), json);
    }

    #[test]
    fn parts_keep_opencodes_json() {
        let part = |mut rest: Value| {
            let object = rest.as_object_mut().expect("object");
            object.insert("id".into(), json!("prt_1"));
            object.insert("sessionID".into(), json!("ses_1"));
            object.insert("messageID".into(), json!("msg_1"));
            rest
        };
        check(part(json!({"type":"text","text":"a","time":{"start":1,"end":2}})));
        check(part(json!({"type":"reasoning","text":"a","time":{"start":1},"metadata":{"signature":"s"}})));
        check(part(json!({"type":"step-start"})));
        check(part(json!({"type":"step-finish","reason":"stop","cost":0.00321,
            "tokens":{"input":1,"output":2,"reasoning":0,"cache":{"read":0,"write":0}}})));
        check(part(json!({"type":"tool","callID":"c","tool":"bash",
            "state":{"status":"pending","input":{},"raw":""}})));
        check(part(json!({"type":"tool","callID":"c","tool":"bash",
            "state":{"status":"completed","input":{"command":"true"},"output":"","title":"true","metadata":{"exit":0},
                     "time":{"start":1,"end":2}}})));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let json = json!({"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":"hologram"});
        assert!(serde_json::from_value::<Part>(json).is_err());
    }
}
