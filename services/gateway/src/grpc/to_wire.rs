//! Conversions between the wire and what the store and the domain know.

use domain::{
    limits,
    message::{Message, ModelRef, User},
    permission::{OnAsk, Rule, Rules, Verdict},
    session::{Class, Origin, Outcome, Phase, Source},
};
use rpc::{
    status::{error, invalid},
    v1::{self, source::From},
};
use store::{
    log::messages::MessageWithParts,
    session::row::Session,
    tenant::{keys::Key, projects::Project, tenants::Tenant},
};
use tonic::{Code, Status};

/// Longest URL or revision that is taken; bytes.
const SOURCE_BYTES_MAX: usize = 2_048;

/// An unset or empty reference is none.
pub(crate) fn from_model(model: Option<v1::ModelRef>) -> Option<ModelRef> {
    let model = model.filter(|model| !model.provider_id.is_empty() || !model.model_id.is_empty())?;
    Some(ModelRef { provider_id: model.provider_id, model_id: model.model_id })
}

/// Checks the form of a source. What only cloning can tell is told by the session.
///
/// # Errors
/// `url_not_allowed`, `revision_invalid`.
pub(crate) fn from_source(source: Option<v1::Source>) -> Result<Source, Status> {
    let Some(source) = source else { return Ok(Source::default()) };
    let origin = match source.from {
        None => Origin::Empty,
        Some(From::BundleId(id)) => Origin::Bundle(id),
        Some(From::GitUrl(url)) => Origin::GitUrl(checked_url(url)?),
    };
    let revision = source.revision;
    let is_word =
        |text: &str| !text.starts_with('-') && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    if revision.len() > SOURCE_BYTES_MAX || !is_word(&revision) {
        return Err(invalid("revision_invalid", "a revision is a branch, a tag or a commit"));
    }
    let revision = (!revision.is_empty()).then_some(revision);
    Ok(Source { origin, revision, uncommitted: false })
}

/// Only what the sandbox can be allowed to clone; it decides finally, by its own settings.
fn checked_url(url: String) -> Result<String, Status> {
    let schemes = ["https://", "ssh://", "file://"];
    let is_clean = url.len() <= SOURCE_BYTES_MAX && !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_clean && schemes.iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(url);
    }
    let shown = domain::text::head(&url, 200).escape_debug().to_string();
    Err(invalid(
        "url_not_allowed",
        format!("{shown} is not a repository URL that is allowed: use https://, or upload a bundle"),
    ))
}

fn source(source: Source) -> v1::Source {
    let from = match source.origin {
        Origin::Empty => None,
        Origin::GitUrl(url) => Some(From::GitUrl(url)),
        Origin::Bundle(id) => Some(From::BundleId(id)),
    };
    v1::Source { from, revision: source.revision.unwrap_or_default() }
}

pub(crate) fn state(phase: Phase) -> v1::SessionState {
    match phase {
        Phase::Idle => v1::SessionState::Idle,
        Phase::Runnable => v1::SessionState::Queued,
        Phase::Running => v1::SessionState::Running,
        Phase::Waiting => v1::SessionState::Waiting,
        Phase::Quarantined => v1::SessionState::Quarantined,
    }
}

pub(crate) fn class(class: Class) -> v1::SessionClass {
    match class {
        Class::Interactive => v1::SessionClass::Interactive,
        Class::Pr => v1::SessionClass::Pr,
        Class::Batch => v1::SessionClass::Batch,
    }
}

/// Reads a class; an unset one is interactive.
pub(crate) fn from_class(class: v1::SessionClass) -> Class {
    match class {
        v1::SessionClass::Unspecified | v1::SessionClass::Interactive => Class::Interactive,
        v1::SessionClass::Pr => Class::Pr,
        v1::SessionClass::Batch => Class::Batch,
    }
}

/// Reads what to do instead of asking; an unset one waits.
pub(crate) fn from_on_ask(on_ask: v1::OnAsk) -> OnAsk {
    match on_ask {
        v1::OnAsk::Unspecified | v1::OnAsk::Park => OnAsk::Park,
        v1::OnAsk::Deny => OnAsk::Deny,
        v1::OnAsk::Fail => OnAsk::Fail,
    }
}

/// Checks rules of permission.
///
/// # Errors
/// `rules_too_many`, `rule_invalid`.
pub(crate) fn from_rules(rules: Vec<v1::PermissionRule>) -> Result<Rules, Status> {
    if rules.len() > limits::PERMISSION_RULES_MAX {
        let message = format!("a session is made with at most {} rules", limits::PERMISSION_RULES_MAX);
        return Err(invalid("rules_too_many", message));
    }
    rules.into_iter().map(from_rule).collect::<Result<_, _>>().map(Rules)
}

fn from_rule(rule: v1::PermissionRule) -> Result<Rule, Status> {
    let wrong = |what: &str| invalid("rule_invalid", format!("a rule of permission {what}"));
    let action = match rule.verdict() {
        v1::PermissionVerdict::Allow => Verdict::Allow,
        v1::PermissionVerdict::Ask => Verdict::Ask,
        v1::PermissionVerdict::Deny => Verdict::Deny,
        v1::PermissionVerdict::Unspecified => return Err(wrong("says ALLOW, ASK or DENY")),
    };
    let v1::PermissionRule { permission, pattern, .. } = rule;
    if permission.is_empty() {
        return Err(wrong("names a tool, or * for all"));
    }
    if permission.len() + pattern.len() > limits::PERMISSION_RULE_BYTES_MAX {
        return Err(wrong(&format!("has at most {} bytes", limits::PERMISSION_RULE_BYTES_MAX)));
    }
    if permission.contains('\0') || pattern.contains('\0') {
        return Err(wrong("has no zero bytes"));
    }
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

pub(crate) fn session(session: Session) -> v1::Session {
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
    }
}

/// What a prompt says that its turn changed.
pub(crate) fn message_diff(message: &Message) -> v1::GetSessionDiffResponse {
    let Message::User(User { summary: Some(summary), .. }) = message else {
        return v1::GetSessionDiffResponse::default();
    };
    let lines = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let files = summary.diffs.iter().map(|diff| v1::FileStat {
        path: diff.file.clone().unwrap_or_default(),
        additions: lines(diff.additions),
        deletions: lines(diff.deletions),
    });
    v1::GetSessionDiffResponse {
        files: files.collect(),
        patch: summary.diffs.iter().filter_map(|diff| diff.patch.as_deref()).collect(),
        truncated: summary.diffs.iter().any(|diff| diff.patch.is_none()),
    }
}

/// # Errors
/// `row_unreadable`, for what cannot be written as JSON.
pub(crate) fn message(entry: &MessageWithParts) -> Result<v1::Message, Status> {
    let json = |result: Result<String, serde_json::Error>| {
        result.map_err(|_| error(Code::Internal, "row_unreadable", "a stored row cannot be written as JSON"))
    };
    let parts = entry.parts.iter().map(|(seq, part)| {
        Ok(v1::Part {
            id: part.id.to_string(),
            kind: part.body.kind().to_owned(),
            seq: *seq,
            json: json(serde_json::to_string(part))?,
        })
    });
    let session_id = match &entry.message {
        domain::message::Message::User(user) => user.session_id.to_string(),
        domain::message::Message::Assistant(assistant) => assistant.session_id.to_string(),
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

pub(crate) fn project(project: Project) -> v1::Project {
    v1::Project {
        id: project.id.to_string(),
        name: project.name,
        source: Some(source(project.source)),
        created_at_ms: project.created_at.0,
    }
}

pub(crate) fn tenant(tenant: Tenant) -> v1::Tenant {
    v1::Tenant {
        id: tenant.id.0.to_string(),
        name: tenant.name,
        created_at_ms: tenant.created_at.0,
        running_max: tenant.running_max,
        weight: tenant.weight,
    }
}

pub(crate) fn key(key: Key) -> v1::Key {
    v1::Key {
        prefix: key.prefix,
        name: key.name,
        created_at_ms: key.created_at.0,
        revoked_at_ms: key.revoked_at.map_or(0, |at| at.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_sources_are_refused() {
        let url = |url: &str| {
            Some(v1::Source { from: Some(From::GitUrl(url.to_owned())), revision: String::new() })
        };
        for hostile in ["ext::sh -c id", "git://h/r", "-u evil", "https://a b", "/etc", "", "https://a\nb"] {
            let status = from_source(url(hostile)).expect_err(hostile);
            assert_eq!(rpc::status::code_of(&status).as_deref(), Some("url_not_allowed"), "{hostile}");
        }
        assert!(from_source(url("https://example.com/a.git")).is_ok());
        let revision = |text: &str| from_source(Some(v1::Source { from: None, revision: text.to_owned() }));
        assert!(
            revision("--upload-pack=id").is_err() && revision("a b").is_err() && revision("main").is_ok()
        );
    }
}
