//! `network`: asks people to let the session reach more hosts. The permission for the call is their answer. A call that ended well opens its hosts until the
//! turn ends.
// Continues in repository::egress, with the next tool.

use crate::tools::{
    context::CallContext,
    outcome::{Output, ToolError},
    spec::tool_spec,
    tool::Tool,
};
use domain::{
    conversation::part::{self, ToolState},
    egress::{
        allow::HostRefusal,
        host::{HostName, HostNameError},
    },
    policy::tool,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The arguments of a call. The reason is for people only.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    hosts: Vec<String>,
}

pub(crate) fn spec() -> tool::Spec {
    tool_spec(
        Tool::Network.name(),
        "Asks people to let commands and webfetch reach more hosts until this turn ends. Use it when a command or a page needs \
         one of these hosts and was refused, and then run it again.",
        json!({
            "type": "object",
            "properties": {
                "hosts": {
                    "type": "array", "minItems": 1, "maxItems": 20,
                    "items": {"type": "string", "minLength": 1, "maxLength": 253},
                    "description": "Names of hosts, such as \"registry.acme.dev\": no URLs and no wildcards"
                },
                "reason": {"type": "string", "description": "What they are needed for, for the people who decide"}
            },
            "required": ["hosts", "reason"],
            "additionalProperties": false
        }),
    )
}

/// Adds what people may allow to the description.
pub(crate) fn with_list(mut spec: tool::Spec, askable: &BTreeSet<&str>) -> tool::Spec {
    let entries: Vec<&str> = askable.iter().copied().collect();
    spec.description.push_str(&format!(" People may allow: {}.", entries.join(", ")));
    spec
}

/// The hosts that a call names; `None`: one of them is no name of a host.
pub(crate) fn hosts(input: &Value) -> Option<Vec<HostName>> {
    let names = input.get("hosts").and_then(Value::as_array).into_iter().flatten();
    names.map(|name| HostName::parse(name.as_str()?).ok()).collect()
}

/// The hosts that these calls have opened.
pub(crate) fn opened<'a>(calls: impl Iterator<Item = &'a part::Tool>) -> BTreeSet<HostName> {
    let inputs = calls.filter_map(|call| match &call.state {
        ToolState::Completed { input, .. } if call.tool == Tool::Network.name() => Some(input),
        ToolState::Completed { .. }
        | ToolState::Running { .. }
        | ToolState::Pending { .. }
        | ToolState::Error { .. } => None,
    });
    inputs.filter_map(hosts).flatten().collect()
}

/// Checks what the settings let people decide. Whoever calls has the permission.
pub(crate) fn run(ctx: &CallContext, input: &Input) -> Result<Output, ToolError> {
    let refused = |text: String| ToolError::Model(format!("{text}. Nothing was opened."));
    let parsed = input.hosts.iter().map(|host| HostName::parse(host));
    let hosts: Vec<HostName> =
        parsed.collect::<Result<_, _>>().map_err(|error: HostNameError| refused(error.to_string()))?;
    for host in &hosts {
        match ctx.hosts.check(host) {
            Ok(()) | Err(HostRefusal::NeedsPermission) => {}
            Err(HostRefusal::NotListed(setting)) => {
                let text = format!("People cannot allow {host} in this session: {setting} does not list it");
                return Err(refused(text));
            }
            Err(HostRefusal::NoList) => {
                let text = format!(
                    "People cannot allow {host} in this session: no settings have environment.network"
                );
                return Err(refused(text));
            }
        }
    }
    let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
    let names = names.join(", ");
    let text = format!("Commands and webfetch reach {names} until this turn ends. Run again what needs it.");
    Ok(Output { title: names, text, ..Output::default() })
}
