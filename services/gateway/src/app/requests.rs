//! Requests to people: permissions and questions, their answers, and the "always" answers that remain valid.

use super::{
    gateway::Gateway,
    page::{List, PageRequest},
    sessions::wake,
};
use crate::{
    auth::principal::Principal,
    errors::{entity::Entity, error::Error, invalid::Invalid},
    scope::Scope,
    state::now,
};
use domain::{
    conversation::request::{Answer, Id},
    ids::{EventId, PermissionId, QuestionId, SessionId},
    limits,
    policy::permission::Scope as ApprovalScope,
    text::without_nul,
};
use store::{
    people::{
        approvals::Approval,
        requests::{AnswerOutcome, NewAnswer, RequestRecord, RequestScope},
    },
    tenant::worktrees::SessionArea,
};

/// The two kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Permission,
    Question,
}

impl RequestKind {
    /// The prefix of ids of this kind.
    fn prefix(self) -> &'static str {
        match self {
            Self::Permission => "per",
            Self::Question => "que",
        }
    }

    fn is_id(self, text: &str) -> bool {
        match self {
            Self::Permission => text.parse::<PermissionId>().is_ok(),
            Self::Question => text.parse::<QuestionId>().is_ok(),
        }
    }
}

/// The sessions whose requests are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestFilter {
    Tenant,
    Area(SessionArea),
    Session(SessionId),
    /// A session and all subtasks below it.
    Tree(SessionId),
}

/// Lists open requests.
///
/// # Errors
/// `session_not_found`, `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_open(
    gateway: &Gateway,
    principal: &Principal,
    kind: RequestKind,
    filter: &RequestFilter,
    page: PageRequest,
) -> Result<List<RequestRecord>, Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Read)?);
    let scope = match filter {
        RequestFilter::Tenant => RequestScope::Tenant,
        RequestFilter::Area(area) => RequestScope::Area(area),
        RequestFilter::Session(session) => RequestScope::Session(session),
        RequestFilter::Tree(session) => RequestScope::Tree(session),
    };
    if let RequestFilter::Session(session) | RequestFilter::Tree(session) = filter {
        store.get_head(tenant, session).await?;
    }
    let page = page.check(|cursor| kind.is_id(cursor))?;
    let open = store.list_requests(tenant, scope, kind.prefix(), &page).await?;
    Ok(List::of(&page, open, |record| record.request.id.as_str().to_owned()))
}

/// The answer that refuses a permission or a question; the message is for the model.
///
/// # Errors
/// `answer_too_long`.
pub(crate) fn rejection(message: &str) -> Result<Answer, Error> {
    check_length(message.len())?;
    let message = without_nul(message).into_owned();
    Ok(Answer::Reject { message: (!message.is_empty()).then_some(message) })
}

/// The answer to a question: the chosen labels or free texts. An empty list refuses the question.
///
/// # Errors
/// `answer_too_long`.
pub(crate) fn labels(answers: &[Vec<String>]) -> Result<Answer, Error> {
    check_length(answers.iter().flatten().map(String::len).sum::<usize>())?;
    let clean = |text: &String| without_nul(text).into_owned();
    let labels: Vec<Vec<String>> = answers.iter().map(|list| list.iter().map(clean).collect()).collect();
    Ok(if labels.is_empty() { Answer::Reject { message: None } } else { Answer::Labels { labels } })
}

fn check_length(bytes: usize) -> Result<(), Error> {
    let limit = limits::ANSWER_BYTES_MAX;
    if bytes > limit {
        let message = format!("the answer is {bytes} bytes, the limit is {limit} bytes");
        return Err(Invalid::AnswerTooLong.because(message));
    }
    Ok(())
}

/// Stores a person's answer to a request, and wakes the session. An answer that reaches beyond its session is an admin's: it binds the sessions of others.
///
/// # Errors
/// `scope_missing`, `permission_not_found`, `question_not_found`, `already_resolved`, `store_unavailable`.
pub(crate) async fn answer(
    gateway: &Gateway,
    principal: &Principal,
    id: &Id,
    answer: &Answer,
) -> Result<(), Error> {
    let scope = match answer {
        Answer::Always { scope: ApprovalScope::Project | ApprovalScope::Tenant } => Scope::Manage,
        Answer::Always { scope: ApprovalScope::Session }
        | Answer::Once
        | Answer::Reject { .. }
        | Answer::Labels { .. }
        | Answer::Expired => Scope::Write,
    };
    let (state, account) = (&gateway.state, principal.account(scope)?);
    let (tenant, event) = (account.tenant, state.id(EventId::make));
    let answered = principal
        .acting(&state.store)
        .answer_request(tenant, id, NewAnswer { answer, by: principal.name(), epoch: None }, &event, now())
        .await;
    match answered.map_err(Error::from) {
        Ok(AnswerOutcome::Accepted { session, class, events, .. }) => {
            state.publisher.publish_events(tenant, &session, &events);
            wake::interrupt(state, account, &session, class).await;
            Ok(())
        }
        Ok(AnswerOutcome::AlreadyAnswered { by, at, .. }) => {
            let ago_s = (now().0 - at.0).max(0) / 1_000;
            Err(Error::AlreadyResolved { id: id.clone(), by, ago_s })
        }
        Err(Error::NotFound(_)) => Err(Error::NotFound(entity(id))),
        Err(error) => Err(error),
    }
}

/// Refuses a request of another session than this one and its subtasks: a client that shows a session shows the requests of its subtasks too.
///
/// # Errors
/// `permission_not_found`, `question_not_found`, `store_unavailable`.
pub(crate) async fn check_session(
    gateway: &Gateway,
    principal: &Principal,
    session: &SessionId,
    id: &Id,
) -> Result<(), Error> {
    let (store, tenant) = (&gateway.state.store, principal.tenant(Scope::Write)?);
    let not_found = || Error::NotFound(entity(id));
    let owner = store.get_session_of_request(tenant, id).await.map_err(|error| match Error::from(error) {
        Error::NotFound(_) => not_found(),
        error => error,
    })?;
    if owner == *session {
        return Ok(());
    }
    let below = store.list_descendants(tenant, session).await?;
    if below.iter().any(|descendant| descendant.session == owner) { Ok(()) } else { Err(not_found()) }
}

fn kind(id: &Id) -> RequestKind {
    match id {
        Id::Permission(_) => RequestKind::Permission,
        Id::Question(_) => RequestKind::Question,
    }
}

/// The kind of object that a call names with this id.
pub(crate) fn entity(id: &Id) -> Entity {
    match kind(id) {
        RequestKind::Permission => Entity::Permission,
        RequestKind::Question => Entity::Question,
    }
}

/// Lists the "always" answers that apply beyond their session.
///
/// # Errors
/// `page_too_large`, `cursor_invalid`, `store_unavailable`.
pub(crate) async fn list_approvals(
    gateway: &Gateway,
    principal: &Principal,
    page: PageRequest,
) -> Result<List<Approval>, Error> {
    let tenant = principal.tenant(Scope::Read)?;
    let page = page.check(|cursor| cursor.parse::<PermissionId>().is_ok())?;
    let approvals = gateway.state.store.list_approvals(tenant, &page).await?;
    Ok(List::of(&page, approvals, |approval| approval.request.to_string()))
}

/// Revokes an "always" answer.
///
/// # Errors
/// `scope_missing`, `approval_not_found`, `store_unavailable`.
pub(crate) async fn delete_approval(
    gateway: &Gateway,
    principal: &Principal,
    request: &PermissionId,
) -> Result<(), Error> {
    let deleted = principal
        .acting(&gateway.state.store)
        .delete_approval(principal.tenant(Scope::Manage)?, request)
        .await?;
    if deleted { Ok(()) } else { Err(Error::NotFound(Entity::Approval)) }
}
