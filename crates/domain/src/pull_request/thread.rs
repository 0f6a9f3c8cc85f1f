//! The work on one issue or pull request, and what of it the forge shows: a pure state machine. A job performs one action after the other and feeds back what came of
//! it. Each action may be repeated: the forge then shows the same.

use super::{
    change::Change,
    open_request::OpenRequest,
    request::CommentId,
    shown::{ShownCheck, ThreadFacts},
    subject::Subject,
    view::{SessionState, SessionView},
};
use serde::{Deserialize, Serialize};

/// Requests whose authors the state names. Older ones are forgotten once they are acknowledged.
const REQUESTS_MAX: usize = 20;
/// Characters of the title in the name of a branch.
const SLUG_CHARS_MAX: usize = 40;
/// How often a comment that somebody deleted is written again.
const COMMENTS_MAX: u32 = 3;
/// The beginning of the branches that the platform makes. The rule for pushes allows no other.
pub const BRANCH_PREFIX: &str = "flotilla/";

/// Something that happened at the forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ThreadInput {
    /// A person who may do so asked for something, and the session has the prompt.
    Requested { request: OpenRequest },
    /// A person asked for the state.
    StatusAsked { request: OpenRequest },
}

/// What the thread knows. The row of its job has it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub subject: Subject,
    /// The newest last.
    requests: Vec<OpenRequest>,
    /// The comment with the state.
    comment: Option<u64>,
    /// How often it was written because there was none.
    #[serde(default)]
    comments: u32,
    /// Its text.
    #[serde(default)]
    shown: String,
    check: Option<ShownCheck>,
    /// What was pushed.
    change: Option<Change>,
    /// The answer of the agent whose files were published, or for which that failed.
    #[serde(default)]
    published_for: String,
    /// Why the last publication failed; empty: it did not.
    #[serde(default)]
    failure: String,
}

/// What the job does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Show the author of a comment that it was read.
    Acknowledge(CommentId),
    /// Write the comment with the state, or a new text for it.
    ShowState {
        comment: Option<u64>,
        text: String,
    },
    /// Push the files of the session to this branch.
    Publish {
        branch: String,
        message: String,
    },
    OpenPullRequest {
        head: String,
        base: String,
        title: String,
        body: String,
    },
    /// Create a check of a commit, or change it.
    ShowCheck(ShownCheck),
    /// Nothing is left to do.
    Rest,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionOutcome {
    Acknowledged,
    StateShown {
        comment: u64,
        text: String,
    },
    /// The comment is gone: somebody deleted it.
    CommentGone,
    /// The branch is at this commit; `None`: there was nothing to push.
    Published(Option<String>),
    Opened {
        number: u64,
    },
    CheckShown(ShownCheck),
    /// The forge or the broker refuses it for good.
    Refused(String),
}

impl Thread {
    pub fn new(subject: Subject) -> Self {
        Self {
            subject,
            requests: vec![],
            comment: None,
            comments: 0,
            shown: String::new(),
            check: None,
            change: None,
            published_for: String::new(),
            failure: String::new(),
        }
    }

    /// Takes an input from the mailbox. The same one again changes nothing.
    pub fn take(&mut self, input: ThreadInput) {
        match input {
            ThreadInput::Requested { request } | ThreadInput::StatusAsked { request } => {
                if self.requests.iter().any(|known| known.comment == request.comment) {
                    return;
                }
                self.requests.push(request);
                if self.requests.len() > REQUESTS_MAX {
                    let oldest = self.requests.iter().position(|known| known.is_acknowledged);
                    self.requests.remove(oldest.unwrap_or(0));
                }
            }
        }
    }

    /// The action that comes next, while the session looks like this.
    pub fn next(&self, view: &SessionView, session: &str) -> Action {
        if let Some(request) = self.requests.iter().find(|request| !request.is_acknowledged) {
            return Action::Acknowledge(request.comment);
        }
        let facts = self.facts(view, session);
        let state = facts.state_text();
        if self.comment.is_none() && self.comments < COMMENTS_MAX {
            return Action::ShowState { comment: None, text: state };
        }
        if self.must_publish(view) {
            return Action::Publish { branch: self.branch(), message: self.subject.title.clone() };
        }
        if let Some(branch) = self.branch_without_pull_request() {
            let (head, base) = (branch.to_owned(), self.subject.base_branch.clone());
            let (title, body) = (facts.title(), facts.description());
            return Action::OpenPullRequest { head, base, title, body };
        }
        if self.comment.is_some() && self.shown != state {
            return Action::ShowState { comment: self.comment, text: state };
        }
        match facts.check(self.check.as_ref()) {
            Some(check) if self.check.as_ref() != Some(&check) => Action::ShowCheck(check),
            Some(_) | None => Action::Rest,
        }
    }

    /// Notes what came of `action`.
    pub fn apply(&mut self, action: &Action, outcome: ActionOutcome, view: &SessionView) {
        match (action, outcome) {
            (Action::Acknowledge(comment), _) => {
                let same = self.requests.iter_mut().filter(|request| request.comment == *comment);
                same.for_each(|request| request.is_acknowledged = true);
            }
            (Action::ShowState { comment: before, .. }, ActionOutcome::StateShown { comment, text }) => {
                self.comments += u32::from(before.is_none());
                (self.comment, self.shown) = (Some(comment), text);
            }
            (Action::ShowState { .. }, ActionOutcome::CommentGone) => self.comment = None,
            // The conversation is locked, or the issue is gone: there is no place to show anything.
            (Action::ShowState { .. }, _) => (self.comment, self.comments) = (None, COMMENTS_MAX),
            (Action::Publish { branch, .. }, ActionOutcome::Published(commit)) => {
                view.answer_id.clone_into(&mut self.published_for);
                self.failure.clear();
                if let Some(commit) = commit {
                    let pull_request = self.change.as_ref().and_then(|change| change.pull_request);
                    self.change = Some(Change { branch: branch.clone(), commit, pull_request });
                }
            }
            (Action::Publish { .. }, ActionOutcome::Refused(reason)) => {
                view.answer_id.clone_into(&mut self.published_for);
                self.failure = reason;
            }
            (Action::OpenPullRequest { .. }, ActionOutcome::Opened { number }) => {
                if let Some(change) = &mut self.change {
                    change.pull_request = Some(number);
                }
            }
            (Action::OpenPullRequest { .. }, ActionOutcome::Refused(reason)) => self.failure = reason,
            (Action::ShowCheck(_), ActionOutcome::CheckShown(check)) => self.check = Some(check),
            // Not asked again: the App may lack the right.
            (Action::ShowCheck(check), _) => self.check = Some(check.clone()),
            (Action::Publish { .. } | Action::OpenPullRequest { .. } | Action::Rest, _) => {}
        }
    }

    /// The number of the pull request that the platform has opened for this work.
    pub fn pull_request(&self) -> Option<u64> {
        self.change.as_ref()?.pull_request
    }

    /// Whether the session has an answer whose files nobody has published.
    fn must_publish(&self, view: &SessionView) -> bool {
        let has_work = view.state.is_done() && view.changes.is_some();
        has_work && !view.answer_id.is_empty() && view.answer_id != self.published_for
    }

    /// The branch that has been pushed, and still needs a pull request.
    fn branch_without_pull_request(&self) -> Option<&str> {
        let change = self.change.as_ref().filter(|change| change.pull_request.is_none())?;
        self.failure.is_empty().then_some(&change.branch)
    }

    /// What people see of it.
    fn facts<'a>(&'a self, view: &'a SessionView, session: &'a str) -> ThreadFacts<'a> {
        // A failure of an earlier answer says nothing of the newest one.
        let is_current = view.answer_id == self.published_for;
        ThreadFacts {
            subject: &self.subject,
            request: self.requests.last(),
            change: self.change.as_ref(),
            failure: if is_current { &self.failure } else { "" },
            is_published: !self.must_publish(view) && self.branch_without_pull_request().is_none(),
            session,
            view,
        }
    }

    /// The branch of the platform: that of earlier work, or one with the number and the title.
    fn branch(&self) -> String {
        match &self.change {
            Some(change) => change.branch.clone(),
            None => format!("{BRANCH_PREFIX}{}-{}", self.subject.number, slug(&self.subject.title)),
        }
    }
}

/// A title as a part of the name of a branch: small letters, digits and hyphens.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for character in title.chars() {
        let character = character.to_ascii_lowercase();
        if character.is_ascii_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= SLUG_CHARS_MAX {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "work".to_owned() } else { slug.to_owned() }
}

/// Whether a session that looks like this goes on by itself, so that its state will change.
pub fn goes_on(state: &SessionState) -> bool {
    matches!(state, SessionState::Queued { .. } | SessionState::Working | SessionState::Waiting { .. })
}

#[cfg(test)]
mod tests;
