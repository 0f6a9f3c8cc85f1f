//! The title of a session that nobody named: asked of a small model beside the first step. Whatever becomes of it, the turn
//! goes on; a worker that dies leaves the question to the next one, for as long as there is one prompt.
// Continues in `context::title`, which makes the question, and store::session::titles, which lets a person's title stand.

use super::Loop;
use crate::{
    context::title,
    lower,
    model::{chat_span, count_tokens},
    record::Stopped,
};
use domain::{
    agent, limits,
    message::{ModelRef, User},
    money::Tokens,
    session::Info,
    title::of_answer,
};
use futures::TryStreamExt as _;
use llm::{
    accumulate::{Accumulator, Block},
    error::{Error, ErrorKind},
    event::Event,
    model::Model,
    provider::Provider,
    request::Request,
};
use std::time::Duration;
use store::log::change::{Spend, Title};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span};

/// What a loop knows of its session's title.
pub(super) struct Titling {
    /// The one of a session that nobody named, until this loop asked for a better one.
    default: Option<Box<str>>,
    asking: Option<Asking>,
}

type Asking = AbortOnDropHandle<Option<Box<Title>>>;

/// One question for a title.
struct Asked {
    models: llm::client::Client,
    provider: Provider,
    model: Model,
    request: Request,
    session: String,
    instead_of: Box<str>,
}

impl Titling {
    /// Begins with what the session is called. A subtask is called what it does.
    pub(super) fn of(session: &Info) -> Self {
        let is_untitled = session.parent_id.is_none() && domain::title::is_default(&session.title);
        Self { default: is_untitled.then(|| session.title.clone().into()), asking: None }
    }

    /// Waits for the answer, if there was a question. Cancel-safe.
    pub(super) async fn settled(&mut self) -> Option<Box<Title>> {
        let Some(handle) = &mut self.asking else { return std::future::pending().await };
        let title = handle.await.ok().flatten();
        self.asking = None;
        title
    }

    /// Ends the call: the turn is aborted.
    pub(super) fn stop(&mut self) {
        self.asking = None;
    }
}

impl Loop {
    /// Asks for a title beside the step that answers `user`, once, unless the session has one or more than one prompt.
    pub(super) fn ask_for_title(&mut self, user: &User) {
        let agent = self.rights.agent(agent::TITLE);
        let Some(default) = &self.titling.default else { return };
        if !self.conversation.is_whole() {
            return;
        }
        let Some(prompt) = title::only_prompt(self.conversation.entries()) else { return };
        if agent.is_some_and(|agent| agent.disable == Some(true)) {
            return;
        }
        let Some((provider, model)) = self.small_model(user) else { return };
        let Some(mut request) = title::request(prompt, &model) else { return };
        if let Some(agent) = agent {
            lower::configure(&mut request, agent);
        }
        let asked = Asked {
            models: self.deps.models.clone(),
            provider: provider.clone(),
            model,
            request,
            session: self.record.session().to_string(),
            instead_of: default.clone(),
        };
        let span = chat_span(&asked.provider, &asked.model);
        self.titling = Titling {
            default: None,
            asking: Some(Asking::new(tokio::spawn(asked.title().instrument(span)))),
        };
    }

    /// As [`Loop::ask_for_title`], at the end of a turn whose last step another worker made.
    pub(super) async fn ask_again_for_title(&mut self) {
        if self.titling.default.is_none() {
            return;
        }
        let user = self.conversation.newest_user(&self.inputs).and_then(|user| self.answering(user));
        if let Some(user) = user {
            self.lease_runs().await;
            self.ask_for_title(&user);
        }
    }

    /// Who is asked: the model that settings name for this, as far as it is known here, else the small one beside the model
    /// of the prompt.
    fn small_model(&self, user: &User) -> Option<(&Provider, Model)> {
        let of_agent = self.rights.agent(agent::TITLE).and_then(|agent| agent.model.as_ref());
        let named = of_agent.into_iter().chain(&self.settings().small_model);
        let found = named.filter_map(|asked| self.model_of(asked)).next();
        let own = &user.model.model;
        let beside = || self.deps.providers.small_model_for(&own.provider_id, &own.model_id);
        let small = || {
            let (provider, model) = beside()?;
            self.model_of(&ModelRef { provider_id: provider.id.clone(), model_id: model.id.clone() })
        };
        found.or_else(small).or_else(|| self.model_of(own))
    }

    /// Stores what became of the question.
    pub(super) async fn titled(&mut self, title: Option<Box<Title>>) -> Result<(), Stopped> {
        match title {
            Some(title) => self.record.write_title(&mut self.conversation, *title).await,
            None => Ok(()),
        }
    }

    /// Waits a little for a title before the loop ends. Something that happens meanwhile is not kept waiting: whoever parks
    /// finds it.
    pub(super) async fn await_title(&mut self) -> Result<(), Stopped> {
        if self.titling.asking.is_none() {
            return Ok(());
        }
        let title = tokio::select! {
            biased;
            () = self.control.leave.now.cancelled() => None,
            title = self.titling.settled() => title,
            Ok(()) = self.control.nudges.changed() => None,
            () = sleep(Duration::from_millis(limits::TITLE_WAIT_MS)) => None,
        };
        self.titled(title).await
    }
}

impl Asked {
    /// Asks, and gives what is to be stored: also what a call cost that failed in its middle. Nobody but an operator is told
    /// of a failure.
    async fn title(self) -> Option<Box<Title>> {
        let (patience, mut tokens) = (Duration::from_millis(limits::TITLE_CALL_MS), Tokens::default());
        let late = || Error::new(ErrorKind::Timeout, "no title in time");
        let asked = tokio::time::timeout(patience, self.attempts(&mut tokens)).await;
        let answered = asked.unwrap_or_else(|_| Err(late()));
        let outcome = match &answered {
            Ok(Some(_)) => "written",
            Ok(None) => "empty",
            Err(error) => {
                Span::current().record("error.code", error.kind.as_str());
                tracing::debug!(error.code = error.kind.as_str(), "a title was not written: {error}");
                "failed"
            }
        };
        metrics::counter!("flotilla_titles_total", "outcome" => outcome).increment(1);
        count_tokens(&tokens);
        Span::current().record("gen_ai.usage.input_tokens", tokens.prompt());
        Span::current().record("gen_ai.usage.output_tokens", tokens.output + tokens.reasoning);
        let (title, spend) =
            (answered.ok().flatten(), Spend { tokens, cost: self.model.price.cost(&tokens) });
        let is_news = title.is_some() || tokens != Tokens::default();
        is_news.then(|| Box::new(Title { instead_of: self.instead_of.into(), title, spend }))
    }

    /// The title, if the model said one. Adds what every attempt cost to `tokens`.
    async fn attempts(&self, tokens: &mut Tokens) -> Result<Option<String>, Error> {
        let mut attempt = 1;
        loop {
            match self.answer(tokens).await {
                Err(error) if error.is_retryable() && attempt < limits::TITLE_ATTEMPTS_MAX => {
                    attempt += 1;
                    sleep(Duration::from_millis(error.retry_after_ms.unwrap_or(limits::TITLE_RETRY_MS)))
                        .await;
                }
                answer => return answer,
            }
        }
    }

    async fn answer(&self, tokens: &mut Tokens) -> Result<Option<String>, Error> {
        let headers = vec![("x-session-id".to_owned(), self.session.clone())];
        let stream = self.models.stream(&self.provider, &self.model, self.request.clone(), headers).await?;
        let mut stream = std::pin::pin!(stream);
        let (mut answer, before) = (Accumulator::default(), *tokens);
        while let Some(said) = stream.try_next().await? {
            if let Event::Usage(used) = &said {
                *tokens = before.plus(*used);
            }
            answer.push(&said);
        }
        let said = answer.finish().blocks.into_iter().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            Block::Reasoning { .. } | Block::ToolCall { .. } | Block::InvalidToolCall { .. } => None,
        });
        Ok(of_answer(&said.collect::<String>()))
    }
}
