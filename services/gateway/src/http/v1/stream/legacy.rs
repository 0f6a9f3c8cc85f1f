//! Shapes of events for older clients, which request them with `?shapes=older`. They are sent in addition to the current events and
//! members, and no name is used for both.

use crate::state::now;
use serde::Deserialize;
use serde_json::{Value, json};

/// The shapes that a client asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Shapes {
    #[default]
    Current,
    Older,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ShapesQuery {
    pub(super) shapes: Shapes,
}

/// The events that a client with older shapes gets instead of `payload`; `None`: the payload itself.
pub(super) fn in_place_of(payload: &str) -> Option<Vec<String>> {
    if !payload.contains("\"permission.") {
        return None;
    }
    let mut event: Value = serde_json::from_str(payload).ok()?;
    match event["type"].as_str()? {
        "permission.asked" => {
            let older = json!({
                "id": format!("{}_older", event["id"].as_str()?), "type": "permission.updated",
                "properties": permission_updated(&event["properties"]),
            });
            Some(vec![payload.to_owned(), older.to_string()])
        }
        "permission.replied" => {
            let properties = event["properties"].as_object_mut()?;
            for (older, current) in [("permissionID", "requestID"), ("response", "reply")] {
                properties.insert(older.to_owned(), properties.get(current)?.clone());
            }
            Some(vec![event.to_string()])
        }
        _ => None,
    }
}

fn permission_updated(request: &Value) -> Value {
    let patterns: Vec<&str> =
        request["patterns"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let permission = request["permission"].as_str().unwrap_or_default();
    json!({
        "id": request["id"], "type": permission, "pattern": patterns, "sessionID": request["sessionID"],
        "messageID": request["tool"]["messageID"], "callID": request["tool"]["callID"],
        "title": format!("{permission} {}", patterns.join(" ")).trim_end(), "metadata": request["metadata"],
        "time": {"created": now()},
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn replacement(kind: &str, properties: &Value) -> Option<Vec<Value>> {
        let payload = json!({"id": "evt_1", "type": kind, "properties": properties}).to_string();
        let events = in_place_of(&payload)?;
        Some(events.iter().map(|payload| serde_json::from_str(payload).unwrap()).collect())
    }

    #[test]
    fn a_request_comes_in_both_shapes_and_an_answer_with_both_names() {
        let request = json!({
            "id": "per_1", "sessionID": "ses_1", "permission": "bash", "patterns": ["rm a", "rm b"], "metadata": {"a": 1},
            "always": ["rm *"], "tool": {"messageID": "msg_1", "callID": "c1"},
        });
        let both = replacement("permission.asked", &request).unwrap();
        assert_eq!((both.len(), &both[0]["properties"]), (2, &request));
        let older = &both[1]["properties"];
        assert_eq!((&both[1]["type"], &both[1]["id"]), (&json!("permission.updated"), &json!("evt_1_older")));
        assert_eq!(
            (&older["type"], &older["pattern"], &older["title"], &older["callID"]),
            (&json!("bash"), &json!(["rm a", "rm b"]), &json!("bash rm a rm b"), &json!("c1"))
        );
        let replied = json!({"sessionID": "ses_1", "requestID": "per_1", "reply": "once"});
        let both = replacement("permission.replied", &replied).unwrap();
        let one = &both[0]["properties"];
        assert_eq!((&one["permissionID"], &one["response"]), (&json!("per_1"), &json!("once")));
        assert_eq!((&one["requestID"], both.len()), (&json!("per_1"), 1));
        assert_eq!(replacement("session.idle", &json!({"text": "\"permission.asked"})), None);
    }
}
