//! The one door for verdicts about calls: of a model while its answer is stored, of a call that waited for a person, of a person's own shell
//! command, of a command's template, and of a model that repeats itself.

use super::{
    permissions::Permissions,
    uses::{Subject, Use},
};
use crate::tools::tool::Tool;
use convert_client::converter::TenantConverter;
use domain::policy::permission::Verdict;
use serde_json::Value;

/// The rules for the calls of one agent.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub(crate) permissions: &'a Permissions,
    /// The agent that makes the calls.
    pub(crate) agent: &'a str,
    pub(crate) converter: TenantConverter<'a>,
}

impl Judge<'_> {
    /// Whether a call may run, needs a person's permission, or must not run.
    pub(crate) async fn verdict(&self, tool: Tool, input: &Value) -> Verdict {
        self.permissions.judge(self.agent, self.converter, tool, input).await
    }

    /// Whether a call may run without a person's permission.
    pub(crate) async fn allows(&self, tool: Tool, input: &Value) -> bool {
        self.verdict(tool, input).await == Verdict::Allow
    }

    /// Whether the model may keep making the same call of `tool` with the same answer.
    pub(crate) fn repetition(&self, tool: &str) -> Verdict {
        self.permissions.repetition_verdict(self.agent, tool)
    }

    /// The use of a call that a person must allow.
    pub(crate) async fn use_to_ask(&self, tool: Tool, input: &Value) -> Option<Use> {
        let subject = Subject::of(self.converter, tool, input).await;
        self.permissions.use_to_ask(self.agent, &subject)
    }
}
