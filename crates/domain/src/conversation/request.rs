//! Requests of agents to people: permissions for tool calls, and questions. The session is parked meanwhile.

use crate::{
    ids::{MessageId, PartId, PermissionId, QuestionId, SessionId, Timestamp},
    policy::permission::Scope,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The id of a request. It is made from the id of the tool call's part, so a loop that asks again after a crash makes the same
/// request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    Permission(PermissionId),
    Question(QuestionId),
}

impl Id {
    /// The id as text, with its prefix.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Permission(id) => id.as_str(),
            Self::Question(id) => id.as_str(),
        }
    }

    /// Reads an id of either kind.
    pub fn parse(text: &str) -> Option<Self> {
        let permission = text.parse().map(Self::Permission);
        permission.or_else(|_| text.parse().map(Self::Question)).ok()
    }
}

/// A request, open or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: Id,
    pub session_id: SessionId,
    pub message_id: MessageId,
    pub part_id: PartId,
    /// The provider's id of the call.
    pub call_id: String,
    pub body: RequestBody,
    /// Its deadline, after which the request counts as refused; `None`: no deadline.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RequestBody {
    /// A request for permission to run a tool call.
    Permission {
        permission: String,
        /// The uses of the tool in this call.
        patterns: Vec<String>,
        /// The patterns that an answer "always" would allow.
        always: Vec<String>,
        metadata: Map<String, Value>,
    },
    Question {
        /// The questions, in order.
        questions: Vec<Question>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The whole question.
    pub question: String,
    #[serde(default)]
    pub header: String,
    /// The choices. A person may give another answer too.
    #[serde(default)]
    pub options: Vec<Choice>,
    /// Whether a person may take several choices.
    #[serde(default)]
    pub multiple: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub label: String,
    #[serde(default)]
    pub description: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    Once,
    /// This call and those like it may run.
    Always {
        #[serde(default)]
        scope: Scope,
    },
    /// The call must not run; a question stays unanswered.
    Reject {
        /// A message for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The chosen labels or free texts, for each question in order.
    Labels {
        labels: Vec<Vec<String>>,
    },
    /// The deadline passed without an answer.
    Expired,
}

impl Request {
    /// OpenCode's object.
    pub fn to_json(&self) -> Value {
        let tool = json!({"messageID": self.message_id, "callID": self.call_id});
        match &self.body {
            RequestBody::Permission { permission, patterns, always, metadata } => json!({
                "id": self.id.as_str(), "sessionID": self.session_id, "permission": permission,
                "patterns": patterns, "metadata": metadata, "always": always, "tool": tool,
            }),
            RequestBody::Question { questions } => json!({
                "id": self.id.as_str(), "sessionID": self.session_id, "questions": questions, "tool": tool,
            }),
        }
    }
}
