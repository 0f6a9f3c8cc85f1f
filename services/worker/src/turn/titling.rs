//! The title of a session that no person named: a small model writes it during the first step. The turn continues whatever
//! happens to it. If the worker dies, the next one asks again, as long as the session has only one prompt.
// Continues in `conversation::title`, which builds the request, and store::session::titles, which keeps a person's
// title.

use super::{calling::models::Models, session::Session};
use crate::{
    conversation::title,
    lower::request,
    model::gate::{self, Bill, CallPlan},
    process::{control::Control, deps::Deps},
    record::{Write, WriteError},
};
use chassis::tasks;
use domain::{
    conversation::{message::User, title::of_answer},
    limits,
    policy::agent,
    session::Info,
};
use llm::{
    accumulate::{Accumulator, Block},
    error::{Error, ErrorKind},
    event::Event,
    model::Model,
    provider::Provider,
    request::Request,
};
use std::{sync::Arc, time::Duration};
use store::{
    log::change::{ChangeBody, Title},
    rows::ledger::{LedgerEntry, Purpose},
};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// Attempts at the call: a short overload justifies a second one, and a title justifies no more. After the last one the session keeps the
/// title that it has.
const TITLE_ATTEMPTS_MAX: u32 = 2;
/// Pause between two attempts if the provider names none; milliseconds.
const TITLE_RETRY_MS: u64 = 1_000;

/// The titling of a session.
pub(super) struct Titling {
    /// The title of a session that no person named, until this loop asks for a better one.
    default: Option<Box<str>>,
    asking: Option<AbortOnDropHandle<Option<Box<Title>>>>,
    /// The cost of the calls.
    bill: Bill,
}

/// The task that asks for one title.
struct Asking {
    deps: Arc<Deps>,
    provider: Provider,
    model: Model,
    request: Request,
    session: domain::ids::SessionId,
    instead_of: Box<str>,
    bill: Bill,
}

/// The inputs of the decision whether to ask a model for a title.
#[derive(Debug, Clone, Copy)]
struct TitleFacts {
    /// Whether the session still has its default title.
    is_untitled: bool,
    /// Whether the conversation is loaded from its first message on.
    is_whole: bool,
    /// Whether the conversation has exactly one prompt.
    has_one_prompt: bool,
    /// Whether settings disable the agent that writes titles.
    is_disabled: bool,
}

impl TitleFacts {
    fn wants_title(self) -> bool {
        self.is_untitled && self.is_whole && self.has_one_prompt && !self.is_disabled
    }
}

impl Titling {
    /// Starts with the current title of the session. A subtask is named after its task.
    pub(super) fn new(session: &Info) -> Self {
        let is_untitled =
            session.parent_id.is_none() && domain::conversation::title::is_default(&session.title);
        Self {
            default: is_untitled.then(|| session.title.clone().into()),
            asking: None,
            bill: Bill::default(),
        }
    }

    /// Waits for the title, if a model was asked for one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Box<Title>> {
        let Some(handle) = &mut self.asking else { return std::future::pending().await };
        let title = handle.await.ok().flatten();
        self.asking = None;
        title
    }

    /// Whether the session still has its default title and no model was asked.
    pub(super) fn is_open(&self) -> bool {
        self.default.is_some()
    }

    /// Whether a model is writing the title.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The cost of the calls for a title that is not stored yet. The loop charges it in the write with which it leaves the
    /// session.
    pub(super) fn open_entries(&self) -> Vec<LedgerEntry> {
        if self.is_asking() { self.bill.entries() } else { vec![] }
    }

    /// Ends the call, because the turn is being stopped, and returns its cost.
    pub(super) fn stop(&mut self) -> Vec<LedgerEntry> {
        let entries = self.open_entries();
        self.asking = None;
        entries
    }

    /// Asks for a title during the step that answers `user`, once, if the session has no title and only one prompt.
    pub(super) fn ask(&mut self, session: &Session, models: Models<'_>, user: &User) {
        let Some(instead_of) = self.default.clone() else { return };
        let agent = models.permissions.agent(agent::TITLE);
        let prompt = title::only_prompt(session.conversation().entries());
        let facts = TitleFacts {
            is_untitled: true,
            is_whole: session.conversation().is_whole(),
            has_one_prompt: prompt.is_some(),
            is_disabled: agent.is_some_and(|agent| agent.disable == Some(true)),
        };
        let (true, Some(prompt)) = (facts.wants_title(), prompt) else { return };
        let Some((provider, model)) = models.find_small(user) else { return };
        let Some(mut request) = title::request(prompt, &model) else { return };
        if let Some(agent) = agent {
            request::configure(&mut request, agent);
        }
        let asking = Asking {
            deps: Arc::clone(&session.deps),
            provider: provider.clone(),
            model,
            request,
            session: session.record.session().clone(),
            instead_of,
            bill: self.bill.clone(),
        };
        self.default = None;
        self.asking = Some(tasks::spawn_owned("title", asking.run()));
    }

    /// Waits briefly for a title before the loop ends. An event ends the wait; the park that follows notices it.
    pub(super) async fn wait(&mut self, control: &mut Control) -> Option<Box<Title>> {
        self.asking.as_ref()?;
        tokio::select! {
            biased;
            () = control.leave.now.cancelled() => None,
            title = self.next() => title,
            Ok(()) = control.nudges.changed() => None,
            () = sleep(Duration::from_millis(limits::TITLE_WAIT_MS)) => None,
        }
    }
}

/// Stores a title and its cost.
pub(super) async fn store_title(session: &mut Session, title: Option<Box<Title>>) -> Result<(), WriteError> {
    match title {
        Some(title) => session.record.write(Write::change(ChangeBody::Title(*title))).await,
        None => Ok(()),
    }
}

impl Asking {
    /// Returns what to store: the title, and the cost of the calls even if they failed. Only the operator learns of a
    /// failure.
    async fn run(self) -> Option<Box<Title>> {
        let patience = Duration::from_millis(limits::TITLE_CALL_MS);
        let answer = tokio::time::timeout(patience, self.attempts()).await;
        let answer = answer.unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "no title in time")));
        let outcome = match &answer {
            Ok(Some(_)) => "written",
            Ok(None) => "empty",
            Err(error) => {
                tracing::debug!(error.code = error.kind.as_str(), "cannot write a title: {error}");
                "failed"
            }
        };
        metrics::counter!("flotilla_titles_total", "outcome" => outcome).increment(1);
        let (title, entries) = (answer.ok().flatten(), self.bill.entries());
        let is_news = title.is_some() || !entries.is_empty();
        is_news.then(|| Box::new(Title { instead_of: self.instead_of.into(), title, entries }))
    }

    /// The title, if the model returned one.
    async fn attempts(&self) -> Result<Option<String>, Error> {
        let mut attempt = 1;
        loop {
            match self.call().await {
                Err(error) if error.is_retryable() && attempt < TITLE_ATTEMPTS_MAX => {
                    attempt += 1;
                    sleep(Duration::from_millis(error.retry_after_ms.unwrap_or(TITLE_RETRY_MS))).await;
                }
                answer => return answer,
            }
        }
    }

    async fn call(&self) -> Result<Option<String>, Error> {
        let plan = CallPlan {
            provider: self.provider.clone(),
            model: self.model.clone(),
            request: self.request.clone(),
            session: self.session.clone(),
            purpose: Purpose::Title,
        };
        let mut call = gate::open(&self.deps, plan, &self.bill);
        let mut answer = Accumulator::default();
        loop {
            let event = call.next().await?;
            answer.push(&event);
            if let Event::Finished { .. } = event {
                break;
            }
        }
        let texts = answer.finish().blocks.into_iter().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            Block::Reasoning { .. } | Block::ToolCall { .. } | Block::InvalidToolCall { .. } => None,
        });
        Ok(of_answer(&texts.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn only_a_first_prompt_of_an_untitled_session_gets_a_title() {
        let facts =
            TitleFacts { is_untitled: true, is_whole: true, has_one_prompt: true, is_disabled: false };
        for (what, facts, want) in [
            ("a first prompt", facts, true),
            ("a person's title", TitleFacts { is_untitled: false, ..facts }, false),
            ("a summarized conversation", TitleFacts { is_whole: false, ..facts }, false),
            ("a second prompt", TitleFacts { has_one_prompt: false, ..facts }, false),
            ("switched off by settings", TitleFacts { is_disabled: true, ..facts }, false),
        ] {
            assert_eq!(facts.wants_title(), want, "{what}");
        }
    }
}
