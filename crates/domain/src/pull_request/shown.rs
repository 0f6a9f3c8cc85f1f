//! What people see of a thread: the comment with the state, the pull request and the check. The text of a model stands in blocks of code, so that nothing in it is a
//! link, a picture or a mention.

use super::{
    change::Change,
    open_request::OpenRequest,
    subject::Subject,
    view::{ChangedLines, SessionState, SessionView},
};
use crate::{money::UsdPicos, session::Outcome, text::head};
use serde::{Deserialize, Serialize};

/// Bytes of the answer of an agent in a comment. The whole answer is in the session.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// The name of checks.
const CHECK_NAME: &str = "flotilla";

/// What a check shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    InProgress,
    Success,
    Failure,
    /// Nothing failed, and nothing was done.
    Neutral,
    /// A person must do something.
    ActionRequired,
}

/// A check of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCheck {
    /// `None`: it does not exist yet.
    pub id: Option<u64>,
    pub name: String,
    pub commit: String,
    pub state: CheckState,
    /// One sentence.
    pub title: String,
}

/// What people see of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadFacts<'a> {
    pub(super) subject: &'a Subject,
    /// The newest one.
    pub(super) request: Option<&'a OpenRequest>,
    pub(super) change: Option<&'a Change>,
    /// Why the newest answer could not be published; empty: it could, or there was nothing to publish.
    pub(super) failure: &'a str,
    /// Whether nothing of the work waits to be published.
    pub(super) is_published: bool,
    pub(super) session: &'a str,
    pub(super) view: &'a SessionView,
}

/// The mark by which the platform finds its comment again.
pub fn mark(session: &str) -> String {
    format!("<!-- flotilla:{session} -->")
}

impl ThreadFacts<'_> {
    /// The text of the comment with the state.
    pub(super) fn state_text(&self) -> String {
        let Self { view, failure, .. } = *self;
        let mut lines = vec![mark(self.session), format!("**Flotilla: {}**", self.code()), String::new()];
        if let Some(OpenRequest { author, line, .. }) = self.request {
            lines.push(format!("{author} asked:\n{}\n", block(line)));
        }
        lines.push(self.sentence());
        if !failure.is_empty() {
            lines.push(format!("\nThe work could not be published:\n{}", block(failure)));
        }
        if let Some(Change { branch, pull_request, .. }) = self.change {
            lines.push(match pull_request {
                Some(number) => format!("\nThe work is in #{number}, on the branch `{branch}`."),
                None => format!("\nThe work is on the branch `{branch}`."),
            });
        }
        if matches!(view.state, SessionState::Ended { .. }) && !view.answer.trim().is_empty() {
            lines.push(format!("\n{}", block(head(view.answer.trim(), ANSWER_BYTES_MAX))));
        }
        lines.push(format!("\n<sub>{}</sub>", self.footer()));
        lines.join("\n")
    }

    /// The reason code that people and programs read. Work is done only when people can see it.
    fn code(&self) -> &'static str {
        match self.view.state.is_done() {
            true if !self.failure.is_empty() => "not_published",
            true if !self.is_published => "publishing",
            _ => self.view.state.code(),
        }
    }

    fn sentence(&self) -> String {
        match self.code() {
            "publishing" => "It is done, and its work is being published.".to_owned(),
            _ => self.view.state.sentence(),
        }
    }

    fn footer(&self) -> String {
        let mut facts =
            vec![format!("session `{}`", self.session), format!("cost {}", dollars(self.view.cost))];
        if let Some(ChangedLines { files, additions, deletions }) = self.view.changes {
            facts.push(format!("{files} files, +{additions} −{deletions}"));
        }
        facts.push("commands: `/flotilla help`".to_owned());
        facts.join(" · ")
    }

    /// The title of the pull request.
    pub(super) fn title(&self) -> String {
        // A mention in a title tells nobody, but it looks as if it did.
        self.subject.title.replace('@', "")
    }

    /// The text of the pull request.
    pub(super) fn description(&self) -> String {
        let author = self.request.map(|request| request.author.as_str());
        let verb = if self.subject.is_pull_request { "Belongs to" } else { "Closes" };
        let by = author.map(|author| format!(" {author} asked for it.")).unwrap_or_default();
        let answer = self.view.answer.trim();
        let answer = match answer {
            "" => String::new(),
            answer => format!("\n\n{}", block(head(answer, ANSWER_BYTES_MAX))),
        };
        format!(
            "{verb} #{}.{by}{answer}\n\n<sub>Made by Flotilla in the session `{}`.</sub>",
            self.subject.number, self.session
        )
    }

    /// The check that the newest commit of the work should have, after `before`; `None`: there is no commit.
    pub(super) fn check(&self, before: Option<&ShownCheck>) -> Option<ShownCheck> {
        let commit = self.change?.commit.clone();
        let id = before.filter(|check| check.commit == commit).and_then(|check| check.id);
        let state = match &self.view.state {
            SessionState::Queued { .. } | SessionState::Working => CheckState::InProgress,
            SessionState::Waiting { .. } => CheckState::ActionRequired,
            SessionState::Ended { .. } if !self.failure.is_empty() => CheckState::Failure,
            SessionState::Ended { outcome: Outcome::Done, .. } => CheckState::Success,
            SessionState::Ended { outcome: Outcome::Failed, .. } | SessionState::Quarantined => {
                CheckState::Failure
            }
            SessionState::Ended { outcome: Outcome::NeedsHuman, .. } => CheckState::ActionRequired,
            SessionState::Ended { outcome: Outcome::Aborted, .. } | SessionState::Deleted => {
                CheckState::Neutral
            }
        };
        let title = match &self.view.state {
            // The place in the queue changes often, and a check is no place to watch it.
            SessionState::Queued { .. } => "It waits for a worker.".to_owned(),
            state => state.sentence(),
        };
        Some(ShownCheck { id, name: CHECK_NAME.to_owned(), commit, state, title })
    }
}

/// A text in a block of code, whatever is in it.
fn block(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}", text.trim_end())
}

/// An amount in dollars with cents, rounded up: a cost is never shown as nothing.
fn dollars(amount: UsdPicos) -> String {
    const CENT: u64 = 10_000_000_000;
    let cents = amount.0.max(0).unsigned_abs().div_ceil(CENT);
    format!("${}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_any_text() {
        for (text, want) in
            [("a", "```text\na\n```"), ("a ``` b", "````text\na ``` b\n````"), ("", "```text\n\n```")]
        {
            assert_eq!(block(text), want);
        }
    }

    #[test]
    fn a_cost_is_rounded_up() {
        for (picos, want) in
            [(0, "$0.00"), (1, "$0.01"), (10_000_000_000, "$0.01"), (1_234_000_000_000, "$1.24")]
        {
            assert_eq!(dollars(UsdPicos(picos)), want);
        }
    }
}
