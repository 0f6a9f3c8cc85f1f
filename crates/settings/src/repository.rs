//! The files of settings of a repository: read one by one, so that one mistake does not take the rest along, unless it
//! stands where rights are narrowed.

use crate::{
    document::Document,
    markdown::{Kind, kind_of},
    merge::{Merged, merge},
    problem::Problems,
    substitute::{Reference, Refusal},
};
use domain::{agent::Agent, level::Level};

/// Settings, and what is wrong with the files that have no say in them, or only over permissions.
#[derive(Debug)]
pub struct Configured {
    /// What all files say together.
    pub merged: Merged,
    /// For people: file, line, key and what was expected there.
    pub problems: Option<String>,
}

/// What is wrong where a wrong reading would permit more than was meant: nothing may run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsafe(pub String);

/// Whether the file at `path`, relative to the repository, is one of its settings.
pub fn is_settings(path: &str) -> bool {
    rank(path) < OTHERS || path.starts_with(".opencode/") && kind_of(path).is_some()
}

/// Puts the settings of whoever stands above the repository and the repository's `files`, each with its path, together.
///
/// # Errors
/// A mistake where a wrong reading could permit more than was meant, and files that are too many or too large together.
pub fn configured(above: &[Document], files: &[(&str, &str)]) -> Result<Configured, Unsafe> {
    let mut files = files.to_vec();
    files.sort_by_key(|(path, _)| (rank(path), *path));
    let (mut documents, mut told) = (above.to_vec(), vec![]);
    for file in files {
        match read(file.0, file.1) {
            Ok(document) => documents.push(document),
            Err(Wrong::Rights(problems)) => return Err(Unsafe(problems.to_string())),
            Err(Wrong::Other(problems, rights)) => {
                documents.extend(rights.map(|rights| *rights));
                told.push(problems.to_string());
            }
        }
    }
    // Each was fine alone: what is wrong now is that they are too many.
    let merged = merge(&documents).map_err(|problems| Unsafe(problems.to_string()))?;
    Ok(Configured { merged, problems: (!told.is_empty()).then(|| told.join("\n")) })
}

/// The rank of agents and commands.
const OTHERS: u8 = 4;

/// Files of `.opencode` have the last word, as in OpenCode.
fn rank(path: &str) -> u8 {
    match path {
        "opencode.json" => 0,
        "opencode.jsonc" => 1,
        ".opencode/opencode.json" => 2,
        ".opencode/opencode.jsonc" => 3,
        _ => OTHERS,
    }
}

/// What is wrong with a file.
enum Wrong {
    /// Nobody can tell what it forbids.
    Rights(Problems),
    /// What it forbids can be told, and has its say.
    Other(Problems, Option<Box<Document>>),
}

fn read(path: &str, text: &str) -> Result<Document, Wrong> {
    let named = kind_of(path);
    let parsed = match named {
        Some(named) => Document::markdown(Level::Repository, path, named, text),
        None => Document::json(Level::Repository, path, text),
    };
    let mut document = parsed.map_err(|problems| match named {
        Some((Kind::Command, _)) => Wrong::Other(problems, None),
        // An agent that does not exist may do nothing; a built-in one exists without its file.
        Some((Kind::Agent, name)) if Agent::parse(name).is_none() => Wrong::Other(problems, None),
        Some((Kind::Agent, _)) | None => Wrong::Rights(problems),
    })?;
    let rights = document.rights();
    // What the worker knows is not for whoever may push to a repository.
    let replaced = document.substitute(&mut |reference| match reference {
        Reference::Env(_) => Err(Refusal("a repository has no environment here".to_owned())),
        Reference::File(_) => Err(Refusal("a repository's settings cannot name files".to_owned())),
    });
    let checked = replaced.and_then(|()| merge(std::slice::from_ref(&document)).map(drop));
    checked.map(|()| document).map_err(|problems| match merge(std::slice::from_ref(&rights)) {
        Ok(_) => Wrong::Other(problems, Some(Box::new(rights))),
        Err(_) => Wrong::Rights(problems),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::Settings;
    use domain::permission::{Verdict, strictest};

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
            (".opencode/agent/odd.md", "---\ntools: [a]\n---\n"),
            (".opencode/command/x.md", "---\nno\n---\n"),
        ];
        let configured = configured(&[], &files).unwrap();
        let problems = configured.problems.unwrap();
        assert!(
            problems.contains("opencode.json:3:")
                && problems.contains("agent.a.steps: expected a whole number"),
            "{problems}"
        );
        assert!(
            problems.contains(".opencode/agent/odd.md:2:") && problems.contains(".opencode/command/x.md:2:"),
            "{problems}"
        );
        assert_eq!(configured.merged.settings.agents.keys().collect::<Vec<_>>(), ["review"]);
        assert_eq!(verdict(&configured.merged.settings, "build", "bash"), Verdict::Deny);
    }

    #[test]
    fn what_cannot_be_told_of_rights_permits_nothing() {
        for (path, text) in [
            ("opencode.json", "{"),
            ("opencode.json", "{\"permission\": {\"bash\": \"never\"}}"),
            ("opencode.jsonc", "{\"agent\": {\"x\": {\"permission\": {\"edit\": 1}}}}"),
            (".opencode/agent/build.md", "---\npermission: [x]\n---\n"),
            ("opencode.json", "{\"permission\": {\"bash\": {\"{env:X}\": \"deny\"}, \"edit\": \"{env:X}\"}}"),
        ] {
            let refused = configured(&[], &[(path, text)]).unwrap_err();
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
        let settings = configured(&[platform], &files).unwrap().merged.settings;
        assert_eq!(verdict(&settings, "build", "webfetch"), Verdict::Deny);
    }

    #[test]
    fn a_provider_as_people_write_it_for_themselves_does_no_harm() {
        let text = "{\"model\": \"a/b\", \"provider\": {\"a\": {\"npm\": \"x\", \"options\": {\"apiKey\": \"{env:KEY}\",
            \"baseURL\": \"http://evil\"}, \"models\": {\"b\": {\"cost\": {\"input\": 0}, \"limit\": {\"context\": 9}}}}}}";
        let configured = configured(&[], &[("opencode.json", text)]).unwrap();
        assert_eq!(configured.problems, None);
        let told: Vec<_> = configured.merged.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
        assert_eq!(told, ["provider.a.npm", "provider.a.options", "provider.a.models.b.cost"]);
        let model = domain::message::ModelRef { provider_id: "a".into(), model_id: "b".into() };
        assert_eq!(configured.merged.settings.limit(&model).context, Some(9));
    }

    #[test]
    fn secrets_of_the_worker_are_no_settings() {
        for secret in ["{env:HOME}", "{file:/etc/passwd}"] {
            let text = format!("{{\"agent\": {{\"a\": {{\"prompt\": \"{secret}\"}}}}}}");
            let configured = configured(&[], &[("opencode.json", &text)]).unwrap();
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
            let model = configured(&[], &files).unwrap().merged.settings.model.unwrap();
            assert_eq!(model.model_id, "near");
        }
    }
}
