//! Conversions between the wire and the types of the use cases.

use super::status::{id, to_status};
use crate::{
    app::{
        page::PageRequest,
        projects::place::claimed_remote,
        requests::RequestFilter,
        sessions::{
            budget::SessionBudget,
            output::{FileStat, WorkspaceDiff},
            read::SessionView,
            waits::Wait,
        },
        tenants::UsageEntry,
    },
    errors::{entity::Entity, error::Error, invalid::Invalid},
};
use domain::{
    conversation::message::{FileDiff, ModelRef},
    egress::EgressAccess,
    policy::{
        permission::{OnAsk, Rule, Rules, Verdict},
        role::Role,
    },
    session::{Class, Origin, Outcome, Phase, Source},
};
use rpc::v1::{self, source::From};
use store::{
    log::messages::MessageWithParts,
    rows::session_row::Session,
    tenant::{keys::Key, projects::Project, tenants::Tenant},
};
use tonic::Status;

/// The page that a client asks for. An unset limit or cursor is `None`.
pub(super) fn page(page: Option<v1::Page>) -> PageRequest {
    let v1::Page { limit, cursor } = page.unwrap_or_default();
    PageRequest { limit: (limit > 0).then_some(limit), cursor: (!cursor.is_empty()).then_some(cursor) }
}

/// The sessions whose requests a client lists: one session, with or without its subtasks, or all.
pub(super) fn request_filter(session: &str, with_subtasks: bool) -> Result<RequestFilter, Status> {
    if session.is_empty() {
        return Ok(RequestFilter::Tenant);
    }
    let session = id(session, Entity::Session)?;
    Ok(if with_subtasks { RequestFilter::Tree(session) } else { RequestFilter::Session(session) })
}

/// The model that a client names. An unset or empty reference is `None`.
pub(super) fn from_model(model: Option<v1::ModelRef>) -> Option<ModelRef> {
    let model = model.filter(|model| !model.provider_id.is_empty() || !model.model_id.is_empty())?;
    Some(ModelRef { provider_id: model.provider_id, model_id: model.model_id })
}

/// The source that a client names. An unset source is empty. `remote` is the repository of a bundle, as the client says.
pub(super) fn from_source(source: Option<v1::Source>, remote: &str) -> Source {
    let Some(source) = source else { return Source::default() };
    let (origin, remote) = match source.from {
        None => (Origin::Empty, None),
        Some(From::BundleId(id)) => (Origin::Bundle(id), claimed_remote(remote)),
        Some(From::GitUrl(url)) => (Origin::GitUrl(url), None),
    };
    let revision = (!source.revision.is_empty()).then_some(source.revision);
    Source { origin, revision, remote, ..Source::default() }
}

fn source(source: Source) -> v1::Source {
    let from = match source.origin {
        Origin::Empty => None,
        Origin::GitUrl(url) => Some(From::GitUrl(url)),
        Origin::Bundle(id) => Some(From::BundleId(id)),
    };
    v1::Source { from, revision: source.revision.unwrap_or_default() }
}

pub(super) fn state(phase: Phase) -> v1::SessionState {
    match phase {
        Phase::Idle => v1::SessionState::Idle,
        Phase::Runnable => v1::SessionState::Queued,
        Phase::Running => v1::SessionState::Running,
        Phase::Waiting => v1::SessionState::Waiting,
        Phase::Quarantined => v1::SessionState::Quarantined,
    }
}

pub(super) fn class(class: Class) -> v1::SessionClass {
    match class {
        Class::Interactive => v1::SessionClass::Interactive,
        Class::Pr => v1::SessionClass::Pr,
        Class::Batch => v1::SessionClass::Batch,
    }
}

/// The class that a client names. An unset class is interactive.
pub(super) fn from_class(class: v1::SessionClass) -> Class {
    match class {
        v1::SessionClass::Unspecified | v1::SessionClass::Interactive => Class::Interactive,
        v1::SessionClass::Pr => Class::Pr,
        v1::SessionClass::Batch => Class::Batch,
    }
}

/// The session's behaviour instead of asking. An unset value means to wait.
pub(super) fn from_on_ask(on_ask: v1::OnAsk) -> OnAsk {
    match on_ask {
        v1::OnAsk::Unspecified | v1::OnAsk::Park => OnAsk::Park,
        v1::OnAsk::Deny => OnAsk::Deny,
        v1::OnAsk::Fail => OnAsk::Fail,
    }
}

/// The permission rules that a client names. An unset pattern is `*`.
///
/// # Errors
/// `rule_invalid`.
pub(super) fn from_rules(rules: Vec<v1::PermissionRule>) -> Result<Rules, Status> {
    rules.into_iter().map(from_rule).collect::<Result<_, _>>().map(Rules)
}

fn from_rule(rule: v1::PermissionRule) -> Result<Rule, Status> {
    let action = match rule.verdict() {
        v1::PermissionVerdict::Allow => Verdict::Allow,
        v1::PermissionVerdict::Ask => Verdict::Ask,
        v1::PermissionVerdict::Deny => Verdict::Deny,
        v1::PermissionVerdict::Unspecified => {
            let message = "a permission rule needs the verdict ALLOW, ASK or DENY";
            return Err(to_status(Invalid::Rule.because(message)));
        }
    };
    let v1::PermissionRule { permission, pattern, .. } = rule;
    let pattern = if pattern.is_empty() { "*".to_owned() } else { pattern };
    Ok(Rule { permission, pattern, action, is_approval: false })
}

fn outcome(outcome: Option<Outcome>) -> v1::TurnOutcome {
    match outcome {
        None => v1::TurnOutcome::Unspecified,
        Some(Outcome::Done) => v1::TurnOutcome::Done,
        Some(Outcome::Failed) => v1::TurnOutcome::Failed,
        Some(Outcome::Aborted) => v1::TurnOutcome::Aborted,
        Some(Outcome::NeedsHuman) => v1::TurnOutcome::NeedsHuman,
    }
}

pub(super) fn session(session: Session) -> v1::Session {
    let info = session.info;
    v1::Session {
        id: info.id.to_string(),
        project_id: info.project_id.to_string(),
        parent_id: info.parent_id.map(String::from).unwrap_or_default(),
        title: info.title,
        agent: info.agent,
        model: Some(v1::ModelRef { provider_id: info.model.provider_id, model_id: info.model.id }),
        state: state(session.phase).into(),
        waiting_reason: session.waiting_reason.unwrap_or_default(),
        queue_position: session.queue_position,
        last_outcome: outcome(session.last_outcome).into(),
        last_error: session.last_error.unwrap_or_default(),
        tokens: Some(v1::Tokens {
            input: info.tokens.input,
            output: info.tokens.output,
            reasoning: info.tokens.reasoning,
            cache_read: info.tokens.cache_read,
            cache_write: info.tokens.cache_write,
        }),
        cost_usd_picos: info.cost.0,
        created_at_ms: info.time.created.0,
        updated_at_ms: info.time.updated.0,
        archived_at_ms: info.time.archived.map_or(0, |at| at.0),
        epoch: session.epoch,
        event_seq: session.event_seq,
        source: Some(source(session.source)),
        class: class(session.class).into(),
        wait: None,
        summary: info.summary.map(|changes| v1::Changes {
            additions: changes.additions,
            deletions: changes.deletions,
            files: changes.files,
        }),
        revert: info.revert.map(|revert| v1::Revert {
            message_id: revert.message_id.to_string(),
            part_id: revert.part_id.map(String::from).unwrap_or_default(),
            diff: revert.diff.unwrap_or_default(),
        }),
        branch: session.branch.unwrap_or_default(),
        workspace_session_id: session.workspace_id.to_string(),
    }
}

/// A session, with the reason for its wait.
pub(super) fn session_view(view: SessionView) -> v1::Session {
    v1::Session { wait: view.wait.map(wait), ..session(view.session) }
}

fn wait(wait: Wait) -> v1::Wait {
    v1::Wait {
        reason: wait.reason,
        sentence: wait.sentence,
        used: wait.used,
        max: wait.max,
        position: wait.position,
        eta_ms: wait.ends_at.map_or(0, |at| at.0),
        queued_at_ms: wait.queued_at.map_or(0, |at| at.0),
        asking: wait.asking,
        going_on: wait.working,
    }
}

/// A budget; 0 means no limit.
pub(super) fn budget(SessionBudget { tree, session_spent }: SessionBudget) -> v1::Budget {
    v1::Budget {
        spent_usd_picos: tree.spent.0,
        max_usd_picos: tree.max.map_or(0, |max| max.0),
        session_spent_usd_picos: session_spent.0,
    }
}

/// The changes of a session.
pub(super) fn diff(diff: WorkspaceDiff) -> v1::GetSessionDiffResponse {
    let stat = |file: FileStat| v1::FileStat {
        path: file.path,
        additions: file.additions,
        deletions: file.deletions,
    };
    let files = diff.files.into_iter().map(stat).collect();
    v1::GetSessionDiffResponse {
        patch: diff.patch,
        truncated: diff.truncated,
        files,
        left_out: diff.left_out,
    }
}

/// The changes of a prompt's turn.
pub(super) fn message_diff(diffs: &[FileDiff]) -> v1::GetSessionDiffResponse {
    let lines = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let files = diffs.iter().map(|diff| v1::FileStat {
        path: diff.file.clone().unwrap_or_default(),
        additions: lines(diff.additions),
        deletions: lines(diff.deletions),
    });
    v1::GetSessionDiffResponse {
        files: files.collect(),
        patch: diffs.iter().filter_map(|diff| diff.patch.as_deref()).collect(),
        truncated: diffs.iter().any(|diff| diff.patch.is_none()),
        left_out: vec![],
    }
}

/// A message with its parts.
///
/// # Errors
/// `row_unreadable` if it cannot be written as JSON.
pub(super) fn message(entry: &MessageWithParts) -> Result<v1::Message, Status> {
    let json =
        |result: Result<String, serde_json::Error>| result.map_err(|_| to_status(Error::RowUnreadable));
    let parts = entry.parts.iter().map(|(seq, part)| {
        Ok(v1::Part {
            id: part.id.to_string(),
            kind: part.body.kind().to_owned(),
            seq: *seq,
            json: json(serde_json::to_string(part))?,
        })
    });
    let session_id = match &entry.message {
        domain::conversation::message::Message::User(user) => user.session_id.to_string(),
        domain::conversation::message::Message::Assistant(assistant) => assistant.session_id.to_string(),
    };
    Ok(v1::Message {
        id: entry.message.id().to_string(),
        session_id,
        role: entry.message.role().to_owned(),
        seq: entry.seq,
        info_json: json(serde_json::to_string(&entry.message))?,
        parts: parts.collect::<Result<_, Status>>()?,
    })
}

pub(super) fn project(project: Project) -> v1::Project {
    v1::Project {
        id: project.id.to_string(),
        name: project.name,
        source: Some(source(project.source)),
        created_at_ms: project.created_at.0,
    }
}

pub(super) fn tenant(tenant: Tenant) -> v1::Tenant {
    v1::Tenant {
        id: tenant.id.0.to_string(),
        name: tenant.name,
        created_at_ms: tenant.created_at.0,
        running_max: tenant.running_max,
        weight: tenant.weight,
        keep_idle_days: tenant.retention.idle_days,
        keep_archived_days: tenant.retention.archived_days,
        sessions_max: tenant.quota.sessions,
        projects_max: tenant.quota.projects,
        stored_bytes_max: tenant.quota.stored_bytes,
    }
}

pub(super) fn usage(entry: UsageEntry) -> v1::Usage {
    let UsageEntry { tenant, usage, limits } = entry;
    v1::Usage {
        tenant_id: tenant.id.0.to_string(),
        tenant_name: tenant.name,
        sessions: usage.sessions,
        sessions_max: limits.sessions,
        projects: usage.projects,
        projects_max: limits.projects,
        stored_bytes: usage.stored_bytes,
        stored_bytes_max: limits.stored_bytes,
    }
}

pub(super) fn key(key: Key) -> v1::Key {
    v1::Key {
        prefix: key.prefix,
        name: key.name,
        created_at_ms: key.created_at.0,
        revoked_at_ms: key.revoked_at.map_or(0, |at| at.0),
        role: match key.role {
            Role::Admin => v1::KeyRole::Admin,
            Role::Member => v1::KeyRole::Member,
            Role::Viewer => v1::KeyRole::Viewer,
        }
        .into(),
    }
}

pub(super) fn role(role: v1::KeyRole) -> Result<Role, Status> {
    match role {
        v1::KeyRole::Unspecified => {
            Err(to_status(Invalid::Role.because("name the role of the key: ADMIN, MEMBER or VIEWER")))
        }
        v1::KeyRole::Admin => Ok(Role::Admin),
        v1::KeyRole::Member => Ok(Role::Member),
        v1::KeyRole::Viewer => Ok(Role::Viewer),
    }
}

pub(super) fn egress(access: EgressAccess) -> v1::EgressAccess {
    v1::EgressAccess {
        began_at_ms: access.began_at.0,
        host: access.host,
        code: access.code,
        connections: access.connections,
        bytes: access.bytes,
    }
}
