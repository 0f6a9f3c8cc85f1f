//! What an agent asks of people: to allow a tool call, or to answer a question. The session is parked meanwhile.

use crate::{
    ids::{MessageId, PartId, PermissionId, QuestionId, SessionId, Timestamp},
    permission::Scope,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The id of a request. It is made of the id of the tool call's part, so that asking again is the same request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// Of a permission.
    Permission(PermissionId),
    /// Of a question.
    Question(QuestionId),
}

impl Id {
    /// As text, with its prefix.
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
    /// Its id.
    pub id: Id,
    /// Whose.
    pub session_id: SessionId,
    /// The step that asks.
    pub message_id: MessageId,
    /// The tool call's part.
    pub part_id: PartId,
    /// The provider's id of the call.
    pub call_id: String,
    /// What is asked.
    pub body: RequestBody,
    /// When it counts as refused; `None`: never.
    pub expires_at: Option<Timestamp>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RequestBody {
    /// May this call run?
    Permission {
        /// The tool.
        permission: String,
        /// What it would be used on.
        patterns: Vec<String>,
        /// What an answer "always" would allow.
        always: Vec<String>,
        /// The call's arguments.
        metadata: Map<String, Value>,
    },
    /// What do you think?
    Question {
        /// What is asked, in order.
        questions: Vec<Question>,
    },
}

/// One thing asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The whole question.
    pub question: String,
    /// A few words.
    #[serde(default)]
    pub header: String,
    /// What may be chosen; other answers are allowed too.
    #[serde(default)]
    pub options: Vec<Choice>,
    /// Whether several may be chosen.
    #[serde(default)]
    pub multiple: bool,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// A few words.
    pub label: String,
    /// What it means.
    #[serde(default)]
    pub description: String,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// This call may run.
    Once,
    /// This call and those like it may run.
    Always {
        /// Where.
        #[serde(default)]
        scope: Scope,
    },
    /// It may not; a question is not answered.
    Reject {
        /// Told to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The chosen labels or free texts, for each question in order.
    Labels {
        /// See there.
        labels: Vec<Vec<String>>,
    },
    /// Nobody answered in time.
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
