//! Creates sessions.

use super::budget;
use crate::{
    app::{
        admission, checks,
        choices::{
            agents::{self, AgentUse},
            options,
        },
        gateway::Gateway,
        projects::{manage, source},
    },
    auth::principal::Principal,
    errors::{entity::Entity, error::Error, invalid::Invalid},
    quotas::Growth,
    scope::Scope,
    state::{State, now},
    streams::notices::ClientCommand,
};
use domain::{
    conversation::{message::ModelRef, title},
    ids::{EventId, ProjectId, SessionId, TenantId},
    limits,
    policy::{
        agent::Mode,
        permission::{OnAsk, Rules},
    },
    session::{Class, DEFAULT_AGENT, ExplicitChoices, Origin, Source},
};
use store::{
    rows::session_row::Session,
    session::creation::{IdempotencyKey, NewSession},
    tenant::worktrees::Worktree,
};

/// Permission rules of a new session. Beyond it: `rules_too_many`.
const PERMISSION_RULES_MAX: usize = 100;

const SESSION_ID_BYTES: usize = 30;

/// A client's request for a session. An empty text leaves the choice to the gateway.
#[derive(Debug, Clone)]
pub(crate) struct SessionRequest {
    pub(crate) project: ProjectId,
    /// The worktree of the project in which it begins.
    pub(crate) worktree: Option<Worktree>,
    /// The id that the client chose for the session.
    pub(crate) id: String,
    pub(crate) idempotency_key: String,
    pub(crate) title: String,
    pub(crate) agent: String,
    pub(crate) model: Option<ModelRef>,
    /// The variant of prompts that choose none; empty: the provider's default.
    pub(crate) variant: String,
    /// Without an origin, the project's source is used.
    pub(crate) source: Source,
    pub(crate) class: Class,
    pub(crate) rules: Rules,
    /// 0: no limit.
    pub(crate) budget_usd_picos: i64,
    pub(crate) on_ask: OnAsk,
    /// Whether it works with the environment that its repository proposes, although no admin has allowed it. Only an admin may say so.
    pub(crate) tries_environment: bool,
}

impl SessionRequest {
    /// What a key needs for it.
    fn scope(&self) -> Scope {
        if self.tries_environment { Scope::Manage } else { Scope::Write }
    }

    /// An interactive session of a project, with default settings.
    pub(crate) fn of(project: ProjectId) -> Self {
        Self {
            project,
            worktree: None,
            id: String::new(),
            idempotency_key: String::new(),
            title: String::new(),
            agent: String::new(),
            model: None,
            variant: String::new(),
            source: Source::default(),
            class: Class::Interactive,
            rules: Rules::default(),
            budget_usd_picos: 0,
            on_ask: OnAsk::default(),
            tries_environment: false,
        }
    }
}

/// What a session is, apart from its project and its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionForm<'a> {
    pub(crate) id: &'a str,
    pub(crate) idempotency_key: &'a str,
    pub(crate) title: &'a str,
    pub(crate) model: Option<&'a ModelRef>,
    pub(crate) rules: &'a Rules,
    pub(crate) budget_usd_picos: i64,
}

/// Checks what a request says of a session before its files are sent.
///
/// # Errors
/// `scope_missing`, `model_unknown`, `session_id_invalid`, `name_empty`, `name_too_long`, `rules_too_many`, `rule_invalid`, `budget_invalid`,
/// `idempotency_key_too_long`, `idempotency_key_invalid`.
pub(crate) fn check(gateway: &Gateway, principal: &Principal, form: SessionForm<'_>) -> Result<(), Error> {
    principal.account(Scope::Write)?;
    checks::model(&gateway.state, form.model)?;
    checks::idempotency_key(form.idempotency_key)?;
    chosen_id(form.id, form.idempotency_key)?;
    if !form.title.is_empty() {
        checks::name(form.title)?;
    }
    check_rules(form.rules)?;
    budget::amount(form.budget_usd_picos).map(drop)
}

/// Creates a session. A request with the id of an existing session returns that session.
///
/// # Errors
/// `scope_missing`, `project_not_found`, `model_unknown`, `variant_unknown`, `agent_unknown`, `session_id_invalid`, `name_empty`, `name_too_long`, `rules_too_many`,
/// `rule_invalid`, `budget_invalid`, `idempotency_key_too_long`, `idempotency_key_invalid`, `session_deleted`, `sessions_too_many`,
/// `storage_full`, `store_unavailable`; those of [`source::check`].
pub(crate) async fn create(
    gateway: &Gateway,
    principal: &Principal,
    request: SessionRequest,
) -> Result<Session, Error> {
    let (state, account) = (&gateway.state, principal.account(request.scope())?);
    let tenant = account.tenant;
    checks::model(state, request.model.as_ref())?;
    options::check_variant(&request.variant)?;
    checks::idempotency_key(&request.idempotency_key)?;
    let id = chosen_id(&request.id, &request.idempotency_key)?;
    if let Some(id) = &id {
        match state.store.get_session(tenant, id).await.map_err(Error::from) {
            Err(Error::NotFound(Entity::Session)) => {}
            existing => return existing,
        }
    }
    // If two clients create the session at the same time, this key returns the same session to both.
    let key = id.as_ref().map_or(request.idempotency_key, |id| id.to_string());
    let key = (!key.is_empty()).then_some(IdempotencyKey { name: key, body_sha256: None });
    let near = match admission::admit(state, account, &[Growth::SESSION, Growth::bytes(1)]).await {
        Ok(near) => near,
        Err(full) => return find_repeated(state, tenant, key.as_ref()).await?.ok_or(full),
    };
    source::check(state, tenant, &request.source).await?;
    let given = (request.source.origin != Origin::Empty).then_some(request.source);
    let source = match &request.worktree {
        Some(worktree) => Some(worktree_source(state, tenant, &request.project, given, worktree).await?),
        None => given,
    };
    let agent_use = AgentUse { name: &request.agent, mode: Mode::Primary };
    agents::check_of_project(state, tenant, &request.project, source.as_ref(), agent_use).await?;
    check_rules(&request.rules)?;
    let chosen = ExplicitChoices { agent: !request.agent.is_empty(), model: request.model.is_some() };
    let model = request.model.or_else(|| state.models.first().cloned());
    let model = model.ok_or_else(|| Invalid::ModelUnknown.because("no model is configured"))?;
    let id = id.unwrap_or_else(|| state.id(SessionId::make));
    let agent = if request.agent.is_empty() { DEFAULT_AGENT.to_owned() } else { request.agent };
    let new = NewSession {
        project_id: request.project,
        worktree_id: request.worktree.map(|worktree| worktree.id),
        title: match request.title.as_str() {
            "" => title::default_at(now()),
            title => checks::name(title)?,
        },
        id,
        agent,
        model,
        variant: (!request.variant.is_empty()).then_some(request.variant),
        chosen,
        source,
        class: request.class,
        rules: request.rules,
        budget: budget::amount(request.budget_usd_picos)?,
        on_ask: request.on_ask,
        tries_environment: request.tries_environment,
        key,
    };
    let event = state.id(EventId::make);
    let (session, events) = state.store.create_session(tenant, &new, &event, now()).await?;
    state.publisher.publish_events(tenant, &session.info.id, &events);
    // A person will soon prompt it. A session of a batch may wait for hours.
    if session.class == Class::Interactive {
        state.bus.hint_warm_up(tenant, &session.info.id);
    }
    if let Some(warning) = admission::warning(&near) {
        let command = ClientCommand::warning("Quota", &warning);
        // The session is stored, so a warning that gets lost is no failure of the call.
        if let Err(error) = manage::command_clients(gateway, principal, &session.directory, &command).await {
            tracing::warn!(code = error.code(), "cannot warn the clients of a nearly used quota");
        }
    }
    Ok(session)
}

/// The source of a session in a worktree: the given one, or that of its project, on the branch of the worktree.
async fn worktree_source(
    state: &State,
    tenant: TenantId,
    project: &ProjectId,
    given: Option<Source>,
    worktree: &Worktree,
) -> Result<Source, Error> {
    let source = match given {
        Some(source) => source,
        None => state.store.get_project(tenant, project).await?.source,
    };
    Ok(Source { branch: Some(worktree.branch.clone()), ..source })
}

/// The session that an earlier call with this key created: it is no new one, so no quota refuses it.
async fn find_repeated(
    state: &State,
    tenant: TenantId,
    key: Option<&IdempotencyKey>,
) -> Result<Option<Session>, Error> {
    match key {
        Some(key) => Ok(state.store.find_keyed_session(tenant, key).await?),
        None => Ok(None),
    }
}

/// Checks the id that a client chose for a new session.
fn chosen_id(text: &str, idempotency_key: &str) -> Result<Option<SessionId>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    if !idempotency_key.is_empty() {
        return Err(Invalid::SessionId.because("a session has either an id or an idempotency key, not both"));
    }
    let id = text.parse::<SessionId>().ok().filter(|_| text.len() == SESSION_ID_BYTES);
    id.map(Some).ok_or_else(|| Invalid::SessionId.because("a session id is ses_ and 26 letters and digits"))
}

fn check_rules(rules: &Rules) -> Result<(), Error> {
    if rules.0.len() > PERMISSION_RULES_MAX {
        let message = format!(
            "the session has {} permission rules, the limit is {}",
            rules.0.len(),
            PERMISSION_RULES_MAX
        );
        return Err(Invalid::RulesTooMany.because(message));
    }
    for rule in &rules.0 {
        if rule.permission.is_empty() {
            return Err(Invalid::Rule.because("a permission rule must name a tool, or * for all tools"));
        }
        let (bytes, limit) = (rule.permission.len() + rule.pattern.len(), limits::PERMISSION_RULE_BYTES_MAX);
        if bytes > limit {
            let message = format!("a permission rule is {bytes} bytes, the limit is {limit} bytes");
            return Err(Invalid::Rule.because(message));
        }
        if rule.permission.contains('\0') || rule.pattern.contains('\0') {
            return Err(Invalid::Rule.because("a permission rule must not contain zero bytes"));
        }
    }
    Ok(())
}
