//! The objects of `--json` about sessions. docs/json.md describes every type and field.

use super::show;
use rpc::v1::{Session, Wait};
use serde_json::{Value, json};

/// A session as `--json` shows it.
pub(crate) fn session(session: &Session) -> Value {
    let tokens = session.tokens.unwrap_or_default();
    let model = session.model.clone().unwrap_or_default();
    json!({
        "type": "session", "id": session.id, "project_id": session.project_id, "parent_id": session.parent_id, "title": session.title,
        "model": format!("{}/{}", model.provider_id, model.model_id),
        "state": show::state_word(session.state()), "class": show::class_word(session.class()),
        "wait": wait(session.wait.as_ref()),
        "waiting_reason": session.waiting_reason, "queue_position": session.queue_position,
        "last_outcome": show::outcome(session.last_outcome()), "last_error": session.last_error,
        "tokens": {"input": tokens.input, "output": tokens.output, "reasoning": tokens.reasoning,
            "cache_read": tokens.cache_read, "cache_write": tokens.cache_write},
        "cost_usd_picos": session.cost_usd_picos, "created_at_ms": session.created_at_ms,
        "updated_at_ms": session.updated_at_ms, "archived_at_ms": session.archived_at_ms,
        "epoch": session.epoch, "event_seq": session.event_seq, "branch": session.branch,
        "workspace_session_id": session.workspace_session_id,
    })
}

/// The wait as `--json` shows it.
fn wait(wait: Option<&Wait>) -> Value {
    wait.map_or(Value::Null, |wait| {
        json!({
            "reason": wait.reason, "sentence": wait.sentence, "used": wait.used, "max": wait.max,
            "position": wait.position, "eta_ms": wait.eta_ms, "queued_at_ms": wait.queued_at_ms,
            "asking": wait.asking, "going_on": wait.going_on,
        })
    })
}
