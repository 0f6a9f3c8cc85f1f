//! Selects the agent and the model that answer a prompt: the client's choice, else the settings of the repository, else the
//! defaults of the session. Pure.

use crate::{
    calls::permissions::Permissions,
    turn::session::{Profile, Session},
};
use domain::{
    conversation::message::{Error, ModelRef, User},
    policy::agent::{self, Mode},
    turn::signal::{ModelFailure, Signal},
};
use llm::{config::providers::Config, model::Model, provider::Provider};
use rpc::v1::ErrorCode;
use settings::Settings;

/// The inputs of the choice of an agent and a model.
#[derive(Clone, Copy)]
pub(in crate::turn) struct Models<'a> {
    pub(in crate::turn) providers: &'a Config,
    pub(in crate::turn) settings: &'a Settings,
    pub(in crate::turn) permissions: &'a Permissions,
    pub(in crate::turn) profile: &'a Profile,
}

impl<'a> Models<'a> {
    /// The choice for prompts of a session with these settings.
    pub(in crate::turn) fn of(session: &'a Session, settings: &'a Settings) -> Self {
        let Session { deps, permissions, profile, .. } = session;
        Self { providers: &deps.providers, settings, permissions, profile }
    }

    /// The prompt with the agent and the model that answer it. `None` if its agent may not answer prompts.
    pub(in crate::turn) fn choose(&self, user: &User) -> Option<User> {
        let (mut user, chosen) = (user.clone(), self.profile.chosen);
        if let Some(agent) = &self.settings.default_agent
            && !chosen.agent
            && user.agent == self.profile.agent
        {
            user.agent.clone_from(agent);
        }
        let configured = self.permissions.agent(&user.agent);
        let is_subagent = configured.is_some_and(|agent| agent.mode == Some(Mode::Subagent));
        if !self.permissions.knows(&user.agent) || is_subagent && self.profile.call.is_none() {
            return None;
        }
        let of_repository = || self.settings.model.as_ref().filter(|_| !chosen.model);
        // A model that this deployment does not have is skipped; `flotilla config explain` reports it.
        let is_known = |model: &&ModelRef| self.find(model).is_some();
        let of_agent = configured.and_then(|agent| agent.model.as_ref());
        if let Some(model) = of_agent.or_else(|| of_repository().filter(is_known))
            && user.model.model == self.profile.model
        {
            user.model.model = model.clone();
        }
        Some(user)
    }

    /// A model of this deployment with its provider, within the limits of the settings. `None` for a model that the settings do
    /// not allow.
    pub(in crate::turn) fn find(&self, model: &ModelRef) -> Option<(&'a Provider, Model)> {
        let (provider, found) = self.providers.providers.find(&model.provider_id, &model.model_id)?;
        let (limit, mut found) = (self.settings.limit(model), found.clone());
        found.context_tokens = found.context_tokens.min(limit.context.unwrap_or(u64::MAX));
        found.output_tokens = found.output_tokens.min(limit.output.unwrap_or(u64::MAX));
        found.input_tokens = found.input_tokens.into_iter().chain(limit.input).min();
        self.settings.allows(model).then_some((provider, found))
    }

    /// A model with its provider, or the failure of a call without one.
    pub(in crate::turn) fn get(&self, model: &ModelRef) -> Result<(Provider, Model), Signal> {
        let found = self.find(model).map(|(provider, found)| (provider.clone(), found));
        found.ok_or_else(|| Signal::Failed(final_failure(self.unknown_model_error(model))))
    }

    /// The model that writes titles: the one that settings name, if this deployment has it; else the small model of the prompt's
    /// provider; else the prompt's own model.
    pub(in crate::turn) fn find_small(&self, user: &User) -> Option<(&'a Provider, Model)> {
        let of_agent = self.permissions.agent(agent::TITLE).and_then(|agent| agent.model.as_ref());
        let named = of_agent.into_iter().chain(&self.settings.small_model);
        let own = &user.model.model;
        let small = || {
            let (provider, model) = self.providers.small_model_for(&own.provider_id, &own.model_id)?;
            self.find(&ModelRef { provider_id: provider.id.clone(), model_id: model.id.clone() })
        };
        let named = named.filter_map(|model| self.find(model)).next();
        named.or_else(small).or_else(|| self.find(own))
    }

    /// The failure of a prompt whose agent may not answer it.
    pub(in crate::turn) fn unknown_agent(&self, agent: &str) -> Signal {
        let names: Vec<String> =
            self.permissions.agents(Mode::Primary).into_iter().map(|(name, _)| name).collect();
        Signal::Failed(final_failure(Error::coded(
            ErrorCode::AgentNotFound.as_str(),
            format!("no agent {agent:?} can answer prompts here; available agents: {}", names.join(", ")),
        )))
    }

    fn unknown_model_error(&self, model: &ModelRef) -> Error {
        let (provider_id, model_id) = (&model.provider_id, &model.model_id);
        let message = if self.settings.allows(model) {
            let models = self.providers.providers.known();
            format!(
                "no model {provider_id}/{model_id} is configured; available models: {}",
                models.join(", ")
            )
        } else {
            format!(
                "the settings of this session do not allow the model {provider_id}/{model_id}; run `flotilla config \
                 explain` to see which"
            )
        };
        Error::coded(ErrorCode::ModelNotFound.as_str(), message)
    }
}

fn final_failure(error: Error) -> ModelFailure {
    ModelFailure { error, retryable: false, retry_after_ms: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use domain::{
        conversation::message::MessageTime,
        ids::Timestamp,
        policy::permission::OnAsk,
        session::{Class, ExplicitChoices},
    };
    use settings::{document::Document, merge::merge};
    use std::sync::Arc;

    fn profile(chosen: ExplicitChoices) -> Profile {
        Profile {
            call: None,
            root: "ses_1".parse().unwrap(),
            depth: 0,
            class: Class::default(),
            on_ask: OnAsk::Park,
            agent: "build".to_owned(),
            model: model("claude-haiku-4-5"),
            chosen,
        }
    }

    fn model(id: &str) -> ModelRef {
        ModelRef { provider_id: "anthropic".to_owned(), model_id: id.to_owned() }
    }

    fn user(agent: &str) -> User {
        User {
            id: "msg_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            time: MessageTime { created: Timestamp(1), completed: None },
            agent: agent.to_owned(),
            model: model("claude-haiku-4-5").into(),
            system: None,
            tools: None,
            format: None,
            summary: None,
        }
    }

    #[test]
    fn settings_decide_where_no_client_chose() {
        let env = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| "key".to_owned());
        let providers = llm::config::environment::from_env(&env).unwrap();
        let other = r#""model": "anthropic/claude-sonnet-4-5""#;
        let none = ExplicitChoices { agent: false, model: false };
        let both = ExplicitChoices { agent: true, model: true };
        for (json, chosen, agent, want) in [
            ("{}".to_owned(), none, "build", Some(("build", "claude-haiku-4-5"))),
            (format!("{{{other}}}"), none, "build", Some(("build", "claude-sonnet-4-5"))),
            (format!("{{{other}}}"), both, "build", Some(("build", "claude-haiku-4-5"))),
            (
                r#"{"model": "anthropic/unknown"}"#.to_owned(),
                none,
                "build",
                Some(("build", "claude-haiku-4-5")),
            ),
            (r#"{"default_agent": "plan"}"#.to_owned(), none, "build", Some(("plan", "claude-haiku-4-5"))),
            (r#"{"default_agent": "plan"}"#.to_owned(), both, "build", Some(("build", "claude-haiku-4-5"))),
            ("{}".to_owned(), none, "nobody", None),
            (r#"{"agent": {"a": {"mode": "subagent"}}}"#.to_owned(), none, "a", None),
        ] {
            let document =
                Document::json(domain::policy::level::Level::Repository, "opencode.json", &json).unwrap();
            let settings = Arc::new(merge(&[document]).unwrap().settings);
            let mut permissions = Permissions::default();
            permissions.configure(Arc::clone(&settings));
            let profile = profile(chosen);
            let models = Models {
                providers: &providers,
                settings: &settings,
                permissions: &permissions,
                profile: &profile,
            };
            let user = models.choose(&user(agent));
            let got = user.as_ref().map(|user| (user.agent.as_str(), user.model.model.model_id.as_str()));
            assert_eq!(got, want, "{json} {agent}");
        }
    }
}
