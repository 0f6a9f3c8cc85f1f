//! The system prompt in two blocks, so that providers can cache the first: the agent's role with advice for the model's
//! family, which never changes; and its environment, the repository's instructions, and the prompt's own instruction.

use super::{family::Family, step_context::StepContext};
use crate::{conversation::structured, repository::guidance};
use domain::{
    egress::{allow::ListedHosts, host::HostName},
    ids::Timestamp,
    session::WORKSPACE,
};
use rpc::v1::UnreadFile;
use std::collections::BTreeSet;

/// The agent's role and way of working.
const AGENT: &str = include_str!("../prompt/system.txt");

/// Hosts of each kind that the system prompt names: the model reads them at every step. Of further ones it reads the number.
const SHOWN_HOSTS_MAX: usize = 50;
/// Files without a source lie in a repository too, so that the session has differences and snapshots.
const OWN_REPOSITORY: &str = "one that Flotilla made for this session, because the project has none";

/// A person may expect files, because the client that made the project of their directory could not send any.
const NO_REPOSITORY: &str = "The project of this session has no repository, so its files began empty. If the task needs \
    files that are not there, say so, and that `flotilla project update PROJECT --repo PATH` gives the next sessions of \
    the project a repository.";

/// The blocks, the stable one first.
pub(super) fn blocks(context: &StepContext<'_>) -> Vec<String> {
    let user = context.user;
    let mut rest = vec![environment(context)];
    rest.extend((!context.has_source).then(|| NO_REPOSITORY.to_owned()));
    let unused = context.guidance.environment_notice.as_ref();
    rest.extend(unused.and_then(|notice| notice.sentence.clone()));
    rest.extend(missing_content(&context.guidance.missing_content));
    rest.extend(too_large(&context.guidance.too_large));
    rest.extend(context.guidance.system_blocks());
    rest.extend(user.system.clone());
    rest.extend(context.structured.map(|_| structured::SYSTEM.to_owned()));
    let advice = Family::of(&user.model.model.model_id).advice();
    vec![format!("{AGENT}\n{advice}"), rest.join("\n\n")]
}

fn environment(context: &StepContext<'_>) -> String {
    let model = &context.user.model.model;
    // The day of the prompt, not of the call: every step and every attempt of a turn sends the same text.
    format!(
        "<env>\nModel: {}/{}\nWorking directory: {WORKSPACE}\nRoot of the repository: {WORKSPACE}\n\
         Is a git repository: {}\nPlatform: linux\nNetwork: {}\nDate: {}\n</env>",
        model.provider_id,
        model.model_id,
        if context.has_source { "yes" } else { OWN_REPOSITORY },
        network(&context.permissions.hosts().hosts(), &context.permissions.approved_hosts()),
        date(context.user.time.created),
    )
}

/// What the commands of the session reach: the hosts of the settings, and those that people have opened.
fn network(listed: &ListedHosts, opened: &BTreeSet<HostName>) -> String {
    let ListedHosts { allowed, askable } = listed;
    let opened = opened.iter().map(ToString::to_string);
    let open: Vec<String> = allowed.iter().cloned().chain(opened).collect();
    let open_text = match open.as_slice() {
        [] => "off: commands reach no host".to_owned(),
        open => format!("commands reach only these hosts, by the proxy in https_proxy: {}", shown(open)),
    };
    let askable: Vec<String> = askable.iter().filter(|host| !open.contains(host)).cloned().collect();
    match askable.as_slice() {
        [] => open_text,
        askable => format!("{open_text}; people may open these if you ask: {}", shown(askable)),
    }
}

/// A list of hosts, as far as the model reads it.
fn shown(hosts: &[String]) -> String {
    let more = hosts.len().saturating_sub(SHOWN_HOSTS_MAX);
    let text = hosts.iter().take(SHOWN_HOSTS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

/// What the files lack although their repository names it.
fn missing_content(sentences: &[String]) -> Option<String> {
    let rule = "If the task needs it, say so instead of guessing what it contains.";
    (!sentences.is_empty()).then(|| format!("{} {rule}", sentences.join(" ")))
}

/// The instructions and the configuration that are too large to be read.
fn too_large(files: &[UnreadFile]) -> Option<String> {
    let text = "These files of the repository are too large, so you do not have their content and they have no effect. Read what \
        the task needs from them, and say so if it matters:";
    (!files.is_empty()).then(|| format!("{text}\n{}", guidance::unread(files)))
}

/// The day in UTC, as `2026-11-22`.
fn date(at: Timestamp) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1_000));
    at.map_or_else(|_| "unknown".to_owned(), |at| at.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_dates() {
        assert_eq!(date(Timestamp(1_795_292_980_519)), "2026-11-21");
        assert_eq!(date(Timestamp(i64::MAX)), "unknown");
    }

    #[test]
    fn the_model_learns_what_its_commands_reach() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let text = |allowed: &[&str], askable: &[&str], opened: &[&str]| {
            let opened = opened.iter().filter_map(|name| HostName::parse(name).ok()).collect();
            network(&ListedHosts { allowed: hosts(allowed), askable: hosts(askable) }, &opened)
        };
        assert_eq!(text(&[], &[], &[]), "off: commands reach no host");
        let open = "commands reach only these hosts, by the proxy in https_proxy: ";
        assert_eq!(text(&["a.org", "*.b.org"], &[], &[]), format!("{open}a.org, *.b.org"));
        assert_eq!(
            text(&["a.org"], &["c.org", "d.org"], &["d.org"]),
            format!("{open}a.org, d.org; people may open these if you ask: c.org")
        );
        assert_eq!(
            text(&[], &["c.org"], &[]),
            "off: commands reach no host; people may open these if you ask: c.org"
        );
        let many: Vec<String> = (0..=SHOWN_HOSTS_MAX).map(|number| format!("h{number}.org")).collect();
        assert!(shown(&many).ends_with("h49.org and 1 more"));
    }

    #[test]
    fn the_model_learns_what_the_files_lack() {
        assert_eq!(missing_content(&[]), None);
        let text = missing_content(&["The directories of these submodules are empty here: a.".to_owned()]);
        assert!(text.is_some_and(|text| text.starts_with("The directories") && text.ends_with("contains.")));
    }
}
