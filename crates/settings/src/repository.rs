//! The settings of a repository. A file with a mistake is ignored while the others apply, unless the mistake is in a
//! restriction.

use crate::{
    document::Document,
    markdown::{Kind, Subject, subject_of},
    merge::{MergedSettings, merge},
    problem::Problems,
    proposal,
    substitute::{Reference, Refusal},
};
use domain::policy::{agent::Agent, level::Level};

/// Settings, and the mistakes of files that do not apply or of which only the restrictions apply.
#[derive(Debug)]
pub struct RepositorySettings {
    /// The merged settings.
    pub merged: MergedSettings,
    /// The mistakes, for people: file, line, key and the expected value.
    pub problems: Option<String>,
}

/// A mistake in a restriction. Nothing may run, because ignoring the mistake could permit too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnclearRestriction(pub String);

/// Whether the file at `path`, relative to the repository, is one of its settings. Other files may describe its environment
/// ([`proposal::find`]).
pub fn is_settings(path: &str) -> bool {
    rank(path) < OTHERS || path.starts_with(".opencode/") && subject_of(path).is_some()
}

/// Whether the file at `path` may restrict what agents do: without it, too much could be permitted.
pub fn may_restrict(path: &str) -> bool {
    match subject_of(path) {
        Some(Subject { kind: Kind::Command, .. }) => false,
        // Without its file a new agent does not exist and may do nothing. A built-in agent exists without its file.
        Some(Subject { kind: Kind::Agent, name }) => Agent::parse(name).is_some(),
        None => true,
    }
}

/// Merges the settings of the levels above the repository with the repository's `files`, each with its path.
///
/// # Errors
/// A mistake in a restriction, and files that are too many or too large together.
pub fn configure(
    above: &[Document],
    files: &[(&str, &str)],
) -> Result<RepositorySettings, UnclearRestriction> {
    let mut files = files.to_vec();
    files.retain(|(path, _)| is_settings(path));
    files.sort_by_key(|(path, _)| (rank(path), *path));
    let (mut documents, mut mistakes) = (above.to_vec(), vec![]);
    for file in files {
        match read(file.0, file.1) {
            Ok(document) => documents.push(document),
            Err(Mistake::InRestrictions(problems)) => return Err(UnclearRestriction(problems.to_string())),
            Err(Mistake::Elsewhere(problems, restrictions)) => {
                documents.extend(restrictions.map(|document| *document));
                mistakes.push(problems.to_string());
            }
        }
    }
    // Each file was valid alone, so only the common limits can be exceeded.
    let merged = merge(&documents).map_err(|problems| UnclearRestriction(problems.to_string()))?;
    Ok(RepositorySettings { merged, problems: (!mistakes.is_empty()).then(|| mistakes.join("\n")) })
}

/// The precedence of agents and commands.
const OTHERS: u8 = 5;

/// The files of `.opencode` win, as in OpenCode.
fn rank(path: &str) -> u8 {
    match path {
        "opencode.json" => 0,
        "opencode.jsonc" => 1,
        ".opencode/opencode.json" => 2,
        ".opencode/opencode.jsonc" => 3,
        proposal::FILE => 4,
        _ => OTHERS,
    }
}

/// A mistake in a file.
enum Mistake {
    /// Its restrictions are unclear.
    InRestrictions(Problems),
    /// Its restrictions are clear and apply.
    Elsewhere(Problems, Option<Box<Document>>),
}

fn read(path: &str, text: &str) -> Result<Document, Mistake> {
    if path == proposal::FILE {
        return read_config(text);
    }
    let subject = subject_of(path);
    let parsed = match subject {
        Some(subject) => Document::markdown(Level::Repository, path, subject, text),
        None => Document::json(Level::Repository, path, text),
    };
    let mut document = parsed.map_err(|problems| {
        if may_restrict(path) {
            Mistake::InRestrictions(problems)
        } else {
            Mistake::Elsewhere(problems, None)
        }
    })?;
    let restrictions = document.restrictions();
    // People who may push to the repository must not read the worker's environment and files.
    let replaced = document.substitute(&mut |reference| match reference {
        Reference::Env(_) => Err(Refusal("a repository's settings cannot read the environment".to_owned())),
        Reference::File(_) => Err(Refusal("a repository's settings cannot name files".to_owned())),
    });
    let checked = replaced.and_then(|()| merge(std::slice::from_ref(&document)).map(drop));
    checked.map(|()| document).map_err(|problems| match merge(std::slice::from_ref(&restrictions)) {
        Ok(_) => Mistake::Elsewhere(problems, Some(Box::new(restrictions))),
        Err(_) => Mistake::InRestrictions(problems),
    })
}

/// Reads the file that proposes an environment. At this level it only narrows.
fn read_config(text: &str) -> Result<Document, Mistake> {
    let restrictions = proposal::restrictions(text).map_err(Mistake::InRestrictions)?;
    match proposal::find(&[(proposal::FILE, text)]) {
        Ok(_) => Ok(restrictions),
        Err(problems) => Err(Mistake::Elsewhere(problems, Some(Box::new(restrictions)))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::Settings;
    use domain::policy::permission::{Verdict, strictest};

    fn verdict(settings: &Settings, agent: &str, permission: &str) -> Verdict {
        let lists = settings.rules(agent);
        strictest(&lists.iter().collect::<Vec<_>>(), permission, "x")
    }

    #[test]
    fn a_mistake_takes_its_file_along_and_not_what_the_file_forbids() {
        let files = [
            (
                "opencode.json",
                "{\n  \"permission\": {\"bash\": \"deny\"},\n  \"agent\": {\"a\": {\"steps\": \"many\"}}\n}",
            ),
            (".opencode/agent/review.md", "---\nmode: subagent\n---\nYou review."),
            (".opencode/agent/odd.md", "---\ntools: [a\n---\n"),
            (".opencode/command/x.md", "---\nno\n---\n"),
        ];
        let configured = configure(&[], &files).unwrap();
        let problems = configured.problems.unwrap();
        assert!(
            problems.contains("opencode.json:3:")
                && problems.contains("agent.a.steps: expected a whole number"),
            "{problems}"
        );
        assert!(
            problems.contains(".opencode/agent/odd.md:3:") && problems.contains(".opencode/command/x.md:2:"),
            "{problems}"
        );
        assert_eq!(configured.merged.settings.agents.keys().collect::<Vec<_>>(), ["review"]);
        assert_eq!(verdict(&configured.merged.settings, "build", "bash"), Verdict::Deny);
    }

    #[test]
    fn an_unclear_restriction_permits_nothing() {
        for (path, text) in [
            ("opencode.json", "{"),
            ("opencode.json", "{\"permission\": {\"bash\": \"never\"}}"),
            ("opencode.jsonc", "{\"agent\": {\"x\": {\"permission\": {\"edit\": 1}}}}"),
            (".opencode/agent/build.md", "---\npermission: [x]\n---\n"),
            ("opencode.json", "{\"permission\": {\"bash\": {\"{env:X}\": \"deny\"}, \"edit\": \"{env:X}\"}}"),
        ] {
            let refused = configure(&[], &[(path, text)]).unwrap_err();
            assert!(refused.0.starts_with(path), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_repository_never_permits_what_the_platform_forbids() {
        let platform =
            Document::json(Level::Platform, "platform.json", "{\"permission\": {\"webfetch\": \"deny\"}}")
                .unwrap();
        let files = [
            ("opencode.json", "{\"permission\": {\"*\": \"allow\", \"webfetch\": \"allow\"}}"),
            (".opencode/agent/build.md", "---\npermission:\n  webfetch: allow\n---\n"),
        ];
        let settings = configure(&[platform], &files).unwrap().merged.settings;
        assert_eq!(verdict(&settings, "build", "webfetch"), Verdict::Deny);
    }

    #[test]
    fn a_provider_as_people_write_it_for_themselves_does_no_harm() {
        let text = "{\"model\": \"a/b\", \"provider\": {\"a\": {\"npm\": \"x\", \"options\": {\"apiKey\": \"{env:KEY}\",
            \"baseURL\": \"http://evil\"}, \"models\": {\"b\": {\"cost\": {\"input\": 0}, \"limit\": {\"context\": 9}}}}}}";
        let configured = configure(&[], &[("opencode.json", text)]).unwrap();
        assert_eq!(configured.problems, None);
        let paths: Vec<_> =
            configured.merged.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
        assert_eq!(paths, ["provider.a.npm", "provider.a.options", "provider.a.models.b.cost"]);
        let model = domain::conversation::message::ModelRef { provider_id: "a".into(), model_id: "b".into() };
        assert_eq!(configured.merged.settings.limit(&model).context, Some(9));
    }

    #[test]
    fn secrets_of_the_worker_are_no_settings() {
        for secret in ["{env:HOME}", "{file:/etc/passwd}"] {
            let text = format!("{{\"agent\": {{\"a\": {{\"prompt\": \"{secret}\"}}}}}}");
            let configured = configure(&[], &[("opencode.json", &text)]).unwrap();
            assert!(configured.problems.unwrap().contains("agent.a.prompt"), "{secret}");
            assert!(configured.merged.settings.agents.is_empty(), "{secret}");
        }
    }

    #[test]
    fn the_nearer_file_wins_in_whatever_order_they_were_found() {
        let (near, far) = (
            (".opencode/opencode.json", "{\"model\": \"p/near\"}"),
            ("opencode.json", "{\"model\": \"p/far\"}"),
        );
        for files in [[near, far], [far, near]] {
            let model = configure(&[], &files).unwrap().merged.settings.model.unwrap();
            assert_eq!(model.model_id, "near");
        }
    }
}
