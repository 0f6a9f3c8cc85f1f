//! `network`: asks people to let the session reach more hosts. The permission for the call is their answer. A call that ended well opens its hosts until the
//! turn ends.
// Continues in turn::waits::calls, which performs it, and in repository::egress, with the next tool.

use crate::tools::{
    outcome::ToolError,
    spec::{parse_arguments, tool_spec},
    tool::Tool,
};
use domain::{
    conversation::part::{self, ToolState},
    egress::{
        allow::{AllowLists, HostRefusal},
        host::{HostName, HostNameError},
    },
    policy::tool,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Hosts of one call. A call with more opens nothing, and fails.
const HOSTS_MAX: usize = 20;
/// Characters of the names of hosts. A call with more does not fit its schema, and fails.
const HOSTS_CHARS_MAX: usize = HOSTS_MAX * 255;
/// Characters of a reason. The dialog shows the hosts next to it, and a longer reason would hide them. A call with a longer one does not fit its schema, and fails.
const REASON_CHARS_MAX: usize = 300;
/// The metadata with the hosts that a call opens.
const OPENS: &str = "opens";

/// The arguments of a call. The reason is for people only. The hosts are one text, because OpenCode's clients show no lists of a tool that they do not know.
#[derive(Debug, Deserialize)]
struct Arguments {
    hosts: String,
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
                    "type": "string", "minLength": 1, "maxLength": HOSTS_CHARS_MAX,
                    "description": "Names of hosts with commas between them, such as \"registry.acme.dev, cdn.acme.dev\": no URLs and no wildcards"
                },
                "reason": {"type": "string", "maxLength": REASON_CHARS_MAX, "description": "What they are needed for, for the people who decide"}
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

/// The hosts that a call names; `None`: one of them is no name of a host, or there are none or too many.
pub(crate) fn hosts(input: &Value) -> Option<Vec<HostName>> {
    parse(input.get("hosts")?.as_str()?).ok()
}

/// Reads names of hosts.
///
/// # Errors
/// What is wrong with them, for the model.
fn parse(hosts: &str) -> Result<Vec<HostName>, String> {
    let names = hosts.split([',', ' ', '\n']).filter(|name| !name.is_empty());
    let hosts = names.map(HostName::parse).collect::<Result<Vec<_>, HostNameError>>();
    match hosts.map_err(|error| error.to_string())? {
        hosts if hosts.is_empty() => Err("The call names no host".to_owned()),
        hosts if hosts.len() > HOSTS_MAX => Err(format!("The call names more than {HOSTS_MAX} hosts")),
        hosts => Ok(hosts),
    }
}

/// What is stored with the start of a call that people, or an answer "always", have allowed: the hosts that it opens.
pub(crate) fn begun_metadata(opens: &[HostName]) -> Map<String, Value> {
    let opens: Vec<&str> = opens.iter().map(HostName::as_str).collect();
    Map::from_iter([(OPENS.to_owned(), opens.into())])
}

pub(crate) fn opened<'a>(calls: impl Iterator<Item = &'a part::Tool>) -> BTreeSet<HostName> {
    let opens = calls.filter_map(|call| match &call.state {
        ToolState::Completed { metadata, .. } if call.tool == Tool::Network.name() => Some(metadata),
        ToolState::Completed { .. }
        | ToolState::Running { .. }
        | ToolState::Pending { .. }
        | ToolState::Error { .. } => None,
    });
    opens.flat_map(opens_of).collect()
}

fn opens_of(metadata: &Map<String, Value>) -> Vec<HostName> {
    let names = metadata.get(OPENS).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| HostName::parse(name.as_str()?).ok()).collect()
}

/// Checks a call that began with this metadata, and returns the names of its hosts. It opens those that were allowed when it began: the settings may have
/// changed since.
///
/// # Errors
/// A sentence for the model: a name is none, or people cannot allow the host.
pub(crate) fn read(
    input: Value,
    begun: &Map<String, Value>,
    lists: &AllowLists,
) -> Result<String, ToolError> {
    let refused = |text: String| ToolError::Model(format!("{text}. Nothing was opened."));
    let Arguments { hosts } = parse_arguments(input)?;
    let hosts = parse(&hosts).map_err(refused)?;
    let allowed = opens_of(begun);
    for host in &hosts {
        let reason = match lists.check(host) {
            Ok(()) => continue,
            Err(HostRefusal::NeedsPermission) if allowed.contains(host) => continue,
            Err(HostRefusal::NeedsPermission) => "no person was asked; call the tool again".to_owned(),
            Err(HostRefusal::NotListed(setting)) => format!("{setting} does not list it"),
            Err(HostRefusal::NoList) => "no settings have environment.network".to_owned(),
        };
        return Err(refused(format!("People cannot allow {host} in this session: {reason}")));
    }
    let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
    Ok(names.join(", "))
}

/// The answer of a call that ended well.
pub(crate) fn answer_text(names: &str) -> String {
    format!("Commands and webfetch reach {names} until this turn ends. Run again what needs it.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use domain::{conversation::part::Ran, ids::Timestamp};

    #[test]
    fn hosts_are_read_from_one_text() {
        let read = |text: &str| {
            let hosts = hosts(&json!({"hosts": text}))?;
            Some(hosts.iter().map(|host| host.as_str().to_owned()).collect::<Vec<_>>())
        };
        let (one, two) = ("a.acme.dev".to_owned(), "b.acme.dev".to_owned());
        for text in ["a.acme.dev,b.acme.dev", " A.acme.dev, b.acme.dev.\n", "a.acme.dev b.acme.dev"] {
            assert_eq!(read(text), Some(vec![one.clone(), two.clone()]), "{text:?}");
        }
        assert_eq!(read(&vec!["a.acme.dev"; HOSTS_MAX].join(",")).map(|hosts| hosts.len()), Some(HOSTS_MAX));
        let many = vec!["a.acme.dev"; HOSTS_MAX + 1].join(",");
        for text in ["", " , ", "https://a.acme.dev", "a.acme.dev;b.acme.dev", &many] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(hosts(&json!({"hosts": ["a.acme.dev"]})), None);
    }

    #[test]
    fn a_call_opens_what_was_allowed_when_it_began_and_not_what_it_names() {
        let call = |tool: &str, metadata: Map<String, Value>| part::Tool {
            call_id: "c".to_owned(),
            tool: tool.to_owned(),
            state: ToolState::Completed {
                input: json!({"hosts": "a.acme.dev, pypi.org", "reason": "x"}),
                output: String::new().into(),
                title: String::new(),
                metadata,
                time: Ran::new(Timestamp(1), Timestamp(2)),
                attachments: vec![],
            },
        };
        let allowed = begun_metadata(&[HostName::parse("a.acme.dev").unwrap()]);
        for (tool, metadata, want) in [
            ("network", allowed.clone(), 1),
            ("network", begun_metadata(&[]), 0),
            ("network", Map::new(), 0),
            ("bash", allowed, 0),
        ] {
            assert_eq!(opened([call(tool, metadata)].iter()).len(), want, "{tool}");
        }
    }
}
