//! The settings of a repository. A mistake takes the part along that has it, while everything else applies, unless a restriction would be
//! lost with it.

mod parts;

use crate::{
    document::Document,
    markdown::{Kind, Subject, subject_of},
    merge::{MergedSettings, merge},
    node::{Content, Node, Origin},
    problem::Problems,
    proposal,
    substitute::Refusal,
};
use domain::{
    limits::SETTINGS_PROBLEMS_MAX,
    policy::{
        agent::Agent,
        level::Level,
        reference::{self, Reference},
    },
};
use parts::Loss;
use std::{collections::HashSet, sync::Arc};

/// Passes over one file, each of which leaves out the parts with mistakes that the one before found. With more, only its restrictions apply.
const PASSES_MAX: usize = 20;

/// Settings, and the mistakes that have left something out.
#[derive(Debug)]
pub struct RepositorySettings {
    pub merged: MergedSettings,
    /// The mistakes, for people: file, line, key and the expected value.
    pub problems: Option<String>,
}

/// A mistake in a restriction. Nothing may run, because ignoring the mistake could permit too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnclearRestriction(pub String);

impl From<Problems> for UnclearRestriction {
    fn from(problems: Problems) -> Self {
        Self(problems.to_string())
    }
}

/// Claude Code's settings. What they forbid holds here too.
const CLAUDE: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];
/// The keys of Claude Code's settings that restrict, below `permissions`.
const CLAUDE_LISTS: [&str; 2] = ["ask", "deny"];

/// Whether the file at `path`, relative to the repository, is one of its settings. Other files may describe its environment
/// ([`proposal::find`]), or be named by its settings ([`named_files`]).
pub fn is_settings(path: &str) -> bool {
    rank(path) < OTHERS || path.starts_with(".opencode/") && subject_of(path).is_some()
}

/// Whether the file at `path` may restrict what agents do: without it, too much could be permitted.
pub fn may_restrict(path: &str) -> bool {
    match subject_of(path) {
        Some(Subject { kind: Kind::Command, .. }) => false,
        // Without its file a new agent does not exist and may do nothing. A built-in agent exists without its file.
        Some(Subject { kind: Kind::Agent | Kind::Mode, name }) => Agent::parse(name).is_some(),
        None => true,
    }
}

/// The files of the repository that its settings `files`, each with its path, name in their texts.
pub fn named_files(files: &[(&str, &str)]) -> Vec<String> {
    files.iter().flat_map(|(path, text)| reference::files(path, text)).collect()
}

/// Merges the settings of the levels above the repository with the repository's `files`, each with its path: its settings, and the files that
/// these name.
///
/// # Errors
/// A mistake in a restriction, and files that are too many or too large together.
pub fn configure(
    above: &[Document],
    files: &[(&str, &str)],
) -> Result<RepositorySettings, UnclearRestriction> {
    let mut settings = files.to_vec();
    settings.retain(|(path, _)| is_settings(path));
    settings.sort_by_key(|(path, _)| (rank(path), *path));
    let (mut documents, mut mistakes) = (above.to_vec(), vec![]);
    for (path, text) in settings {
        let mut file = FileReader { path, files, mistakes: &mut mistakes };
        documents.extend(file.read(text)?);
    }
    // Each file was valid alone, so only the common limits can be exceeded.
    let merged = merge(&documents)?;
    let more = mistakes.len().saturating_sub(SETTINGS_PROBLEMS_MAX);
    mistakes.truncate(SETTINGS_PROBLEMS_MAX);
    if more > 0 {
        mistakes.push(format!("and {more} more"));
    }
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
        _ if CLAUDE.contains(&path) => 4,
        _ => OTHERS,
    }
}

/// Reads one file of settings.
struct FileReader<'a> {
    path: &'a str,
    files: &'a [(&'a str, &'a str)],
    mistakes: &'a mut Vec<String>,
}

impl FileReader<'_> {
    /// Returns what applies of the file, and adds its mistakes to the others.
    fn read(&mut self, text: &str) -> Result<Option<Document>, UnclearRestriction> {
        if self.path == proposal::FILE {
            return self.read_proposal(text);
        }
        let subject = subject_of(self.path);
        let parsed = match subject {
            Some(subject) => Document::markdown(Level::Repository, self.path, subject, text),
            None => Document::json(Level::Repository, self.path, text),
        };
        match (parsed, subject) {
            (Ok(mut document), None) if CLAUDE.contains(&self.path) => {
                document.keep(&[&["permissions"], &CLAUDE_LISTS]);
                self.usable(document)
            }
            (Ok(document), _) => self.usable(document),
            (Err(problems), None) => Err(problems.into()),
            (Err(problems), Some(subject)) => self.without_front_matter(subject, problems),
        }
    }

    /// A Markdown file that cannot be read.
    fn without_front_matter(
        &mut self,
        subject: Subject<'_>,
        problems: Problems,
    ) -> Result<Option<Document>, UnclearRestriction> {
        let loss = match subject.kind {
            Kind::Command => Loss::Part,
            Kind::Agent | Kind::Mode => Loss::without_agent(&Arc::from(subject.name)),
        };
        match &loss {
            Loss::All => return Err(problems.into()),
            Loss::Part | Loss::Agent(_) | Loss::File => self.tell(&problems, |_| loss.clone()),
        }
        let Loss::Agent(name) = loss else { return Ok(None) };
        let origin = Origin { level: Level::Repository, file: Arc::from(self.path), line: 1, column: 1 };
        let root = Node { origin, value: Content::Map(vec![]) };
        let mut document = Document { level: Level::Repository, file: Arc::from(self.path), bytes: 0, root };
        document.disable_agent(&name);
        Ok(Some(document))
    }

    /// Leaves out the parts of a document that have mistakes.
    fn usable(&mut self, mut document: Document) -> Result<Option<Document>, UnclearRestriction> {
        let (path, files) = (self.path, self.files);
        let restrictions = document.restrictions();
        for _ in 0..PASSES_MAX {
            // OpenCode replaces no references in Markdown.
            let replaced = match reference::has_references(path) {
                true => document.substitute(&mut |reference| find(reference, path, files)),
                false => Ok(()),
            };
            let checked = replaced.and_then(|()| merge(std::slice::from_ref(&document)).map(drop));
            let Err(problems) = checked else { return Ok(Some(document)) };
            let losses: Vec<Loss> = problems.list.iter().map(|problem| Loss::of(&problem.path)).collect();
            if losses.contains(&Loss::All) {
                return Err(problems.into());
            }
            let is_whole = losses.contains(&Loss::File);
            self.tell(&problems, |path| if is_whole { Loss::File } else { Loss::of(path) });
            if is_whole {
                break;
            }
            let mut removed = HashSet::new();
            // From the end: the items before it keep their places.
            for (problem, loss) in problems.list.iter().zip(losses).rev() {
                match loss {
                    Loss::Agent(name) => document.disable_agent(&name),
                    Loss::Part | Loss::File | Loss::All => {
                        if removed.insert(problem.path.to_string()) {
                            document.remove(&problem.path);
                        }
                    }
                }
            }
        }
        merge(std::slice::from_ref(&restrictions))?;
        Ok(Some(restrictions))
    }

    /// Reads the file that proposes an environment. At this level it only narrows.
    fn read_proposal(&mut self, text: &str) -> Result<Option<Document>, UnclearRestriction> {
        let restrictions = proposal::restrictions(text)?;
        if let Err(problems) = proposal::find(&[(proposal::FILE, text)]) {
            self.tell(&problems, |_| Loss::File);
        }
        Ok(Some(restrictions))
    }

    fn tell(&mut self, problems: &Problems, loss: impl Fn(&crate::node::KeyPath) -> Loss) {
        let lines =
            problems.list.iter().map(|problem| format!("{problem}{}", loss(&problem.path).consequence()));
        self.mistakes.extend(lines);
    }
}

/// Finds the text of a reference in the settings file at `path`. People who may push to the repository must not read the worker's environment and
/// files, but a file of the same commit is no secret.
fn find(reference: Reference<'_>, path: &str, files: &[(&str, &str)]) -> Result<String, Refusal> {
    let Reference::File(written) = reference else {
        return Err(Refusal("a repository's settings cannot read the environment".to_owned()));
    };
    let Some(named) = reference::path_in_repository(path, written) else {
        return Err(Refusal("a repository's settings name only files of the repository".to_owned()));
    };
    let found = files.iter().find(|(path, _)| *path == named);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| {
        Refusal(format!(
            "{named} is no file of the commit that the session began with, or is a link or too large"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::Settings;
    use domain::policy::permission::{Verdict, strictest};

    fn verdict(settings: &Settings, agent: &str, permission: &str) -> Verdict {
        let lists = settings.rules(agent);
        strictest(&lists.iter().collect::<Vec<_>>(), permission, "x")
    }

    #[test]
    fn a_mistake_takes_its_part_along_and_nothing_else() {
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
        let settings = &configured.merged.settings;
        assert_eq!(settings.agents.keys().collect::<Vec<_>>(), ["a", "odd", "review"]);
        assert_eq!(settings.agents["odd"].disable, Some(true), "nobody knows what it may do");
        assert_eq!((settings.agents["a"].steps, settings.agents["a"].disable), (None, None));
        assert_eq!(verdict(&configured.merged.settings, "build", "bash"), Verdict::Deny);
    }

    #[test]
    fn an_unclear_restriction_permits_nothing() {
        for (path, text) in [
            ("opencode.json", "{"),
            ("opencode.json", "{\"permission\": {\"bash\": \"never\"}}"),
            ("opencode.jsonc", "{\"agent\": {\"plan\": {\"permission\": {\"edit\": 1}}}}"),
            ("opencode.json", "{\"permisions\": {\"bash\": \"deny\"}}"),
            ("opencode.json", "{\"permissions\": {\"bash\": \"deny\"}}"),
            ("opencode.json", "{\"mode\": [\"build\"]}"),
            ("opencode.json", "{\"mode\": {\"build\": {\"tools\": 1}}}"),
            ("opencode.json", "{\"subagent_depth\": \"one\"}"),
            (".opencode/mode/build.md", "---\ntools: {bash: no}\n---\n"),
            (".opencode/agent/build.md", "---\ndisallowedTools: {a: 1}\n---\n"),
            (".claude/settings.json", "{\"permissions\": {\"deny\": [1]}}"),
            (".claude/settings.json", "{"),
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
        for secret in ["{env:HOME}", "{file:/etc/passwd}", "{file:../x}", "{file:~/.netrc}", "{file:missing}"]
        {
            let text = format!(
                "{{\"instructions\": [\"a.md\"], \"agent\": {{\"a\": {{\"prompt\": \"{secret}\", \"description\": \"d\"}}}}}}"
            );
            let configured = configure(&[], &[("opencode.json", &text)]).unwrap();
            assert!(configured.problems.unwrap().contains("agent.a.prompt"), "{secret}");
            let settings = configured.merged.settings;
            let agent = &settings.agents["a"];
            assert_eq!(
                (agent.prompt.as_deref(), agent.description.as_deref()),
                (None, Some("d")),
                "{secret}"
            );
            assert_eq!(settings.instructions, ["a.md"], "{secret}");
        }
    }

    #[test]
    fn a_text_of_the_same_repository_is_read() {
        let config = r#"{"instructions": ["docs/rules.md"], "agent": {"reviewer": {"prompt": "{file:./prompts/r.txt}"}},
            "command": {"ship": {"template": "{file:prompts/../ship.md} now"}}}"#;
        let files = [
            ("opencode.json", config),
            ("prompts/r.txt", "You review.\n"),
            ("ship.md", "Ship {env:HOME}"),
            (".opencode/agent/a.md", "About {env:HOME} and {file:x}."),
        ];
        assert_eq!(named_files(&files), ["prompts/r.txt", "ship.md"]);
        let configured = configure(&[], &files).unwrap();
        assert_eq!(configured.problems, None);
        let settings = configured.merged.settings;
        assert_eq!(settings.agents["reviewer"].prompt.as_deref(), Some("You review."));
        assert_eq!(settings.agents["a"].prompt.as_deref(), Some("About {env:HOME} and {file:x}."));
        assert_eq!(settings.commands["ship"].template, "Ship {env:HOME} now", "no reference in what is read");
    }

    #[test]
    fn restrictions_apply_in_every_form() {
        let denied = |files: &[(&str, &str)], agent: &str, permission: &str| {
            let configured = configure(&[], files).unwrap();
            assert_eq!(configured.problems, None, "{files:?}");
            verdict(&configured.merged.settings, agent, permission) == Verdict::Deny
        };
        for (path, text, agent, off, on) in [
            ("opencode.json", r#"{"mode": {"build": {"tools": {"bash": false}}}}"#, "build", "bash", "read"),
            (
                "opencode.json",
                r#"{"agent": {"build": {"tools": {"bash": true}}}, "mode": {"build": {"tools": {"bash": false}}}}"#,
                "build",
                "bash",
                "read",
            ),
            (".opencode/mode/strict.md", "---\ntools: {write: false}\n---\nx", "strict", "edit", "read"),
            (".opencode/modes/build.md", "---\npermission:\n  edit: deny\n---\n", "build", "edit", "read"),
            (".opencode/agent/r.md", "---\ntools: Read, Grep, Glob\n---\nYou review.", "r", "bash", "read"),
            (".opencode/agent/r.md", "---\ntools: [Read, 'Bash(git log:*)']\n---\n", "r", "edit", "read"),
            (".opencode/agent/r.md", "---\ntools:\n  - Read\n---\n", "r", "webfetch", "read"),
            (".opencode/agent/build.md", "---\ndisallowedTools: Write, Edit\n---\n", "build", "edit", "bash"),
            (".opencode/agent/r.md", "---\nallowed-tools: Read\n---\n", "r", "bash", "read"),
            (".opencode/agent/r.md", "---\npermissionMode: plan\n---\n", "r", "edit", "bash"),
            ("opencode.json", r#"{"tools": ["Read"]}"#, "build", "bash", "read"),
            (
                ".claude/settings.json",
                r#"{"permissions": {"deny": ["Bash"]}, "env": {}}"#,
                "build",
                "bash",
                "read",
            ),
        ] {
            assert!(denied(&[(path, text)], agent, off), "{path} {text}");
            assert!(!denied(&[(path, text)], agent, on), "{path} {text}");
        }
        let both = [
            (".claude/settings.json", r#"{"permissions": {"deny": ["Read(./x)"], "allow": ["Bash"]}}"#),
            (".claude/settings.local.json", r#"{"permissions": {"deny": ["Bash"]}}"#),
            ("opencode.json", r#"{"permission": "allow", "agent": {"build": {"permission": "allow"}}}"#),
        ];
        assert!(
            denied(&both, "build", "bash") && denied(&both, "build", "read"),
            "no other rule overrides them"
        );
        let files = [
            (".opencode/agent/r.md", "---\ntools: Bash, Read\n---\n"),
            ("opencode.json", r#"{"permission": {"bash": "deny"}}"#),
        ];
        assert!(denied(&files, "r", "bash"), "a list of tools permits nothing that others forbid");
        let modes = configure(&[], &[(".opencode/mode/strict.md", "---\nmode: subagent\n---\nx")]).unwrap();
        let strict = &modes.merged.settings.agents["strict"];
        assert_eq!(strict.mode, Some(domain::policy::agent::Mode::Primary));
    }

    #[test]
    fn what_claude_code_writes_takes_nothing_along() {
        let files = [
            (
                ".opencode/agent/reviewer.md",
                "---\nname: reviewer\ndescription: Reviews\ntools: Read, Grep, Glob\nmodel: sonnet\ncolor: red\n---\nYou review.",
            ),
            (".opencode/agent/same.md", "---\nmodel: inherit\nmaxTurns: 3\n---\nx"),
            (
                ".opencode/command/ship.md",
                "---\ndescription: d\nargument-hint: [issue] [priority]\nallowed-tools: Bash(git add:*), Read\nmodel: opus\n---\nShip $1",
            ),
            (".opencode/command/odd.md", "---\ndisallowed-tools: Bash\n---\nx"),
        ];
        let configured = configure(&[], &files).unwrap();
        let problems = configured.problems.unwrap();
        let lines: Vec<&str> = problems.lines().collect();
        assert_eq!(
            lines,
            [
                ".opencode/agent/reviewer.md:5:8: agent.reviewer.model: expected a model as \"provider/model\", found \"sonnet\"",
                ".opencode/command/odd.md:2:1: command.odd: expected a command without restrictions, which belong to the agent that it names, found \"disallowed-tools\"",
                ".opencode/command/ship.md:5:8: command.ship.model: expected a model as \"provider/model\", found \"opus\"",
            ]
        );
        let settings = configured.merged.settings;
        let reviewer = &settings.agents["reviewer"];
        assert_eq!((reviewer.prompt.as_deref(), &reviewer.model), (Some("You review."), &None));
        assert_eq!((&settings.agents["same"].model, settings.agents["same"].steps), (&None, Some(3)));
        assert_eq!(settings.commands.keys().collect::<Vec<_>>(), ["ship"]);
        assert_eq!(settings.commands["ship"].template, "Ship $1");
    }

    #[test]
    fn an_agent_whose_restrictions_are_unclear_is_not_available() {
        let above = Document::json(Level::Project, "p", r#"{"agent": {"r": {"prompt": "p"}}}"#).unwrap();
        for (path, text) in [
            (".opencode/agent/r.md", "---\ntools: {bash: no}\n---\nx"),
            (".opencode/agent/r.md", "---\ntools: 'Bash('\n---\nx"),
            (".opencode/agent/r.md", "---\npermissions: {bash: deny}\n---\nx"),
            (".opencode/agent/r.md", "---\ndisable: perhaps\n---\nx"),
            ("opencode.json", r#"{"agent": {"r": {"permission": {"bash": "never"}}, "s": {"prompt": "p"}}}"#),
        ] {
            let configured = configure(std::slice::from_ref(&above), &[(path, text)]).unwrap();
            let problems = configured.problems.unwrap();
            assert!(problems.contains("the agent r is not available"), "{problems}");
            assert_eq!(configured.merged.settings.agents["r"].disable, Some(true), "{text}");
            assert_ne!(configured.merged.settings.agents.get("s").map(|s| s.prompt.is_none()), Some(true));
        }
    }

    #[test]
    fn mistakes_beyond_number_leave_the_restrictions() {
        let members = |count: usize| (0..count).map(|n| format!("\"k{n}\": 1,")).collect::<String>();
        let text =
            format!("{{\"permission\": {{\"bash\": \"deny\"}}, \"model\": \"a/b\", {}}}", members(5_000));
        let configured = configure(&[], &[("opencode.json", &text)]).unwrap();
        assert_eq!(verdict(&configured.merged.settings, "build", "bash"), Verdict::Deny);
        let problems = configured.problems.unwrap();
        assert_eq!(problems.lines().count(), SETTINGS_PROBLEMS_MAX + 1);
        let items = "{\"instructions\": [1, \"a\", 2, \"b\", 3]}";
        let configured = configure(&[], &[("opencode.json", items)]).unwrap();
        assert_eq!(configured.merged.settings.instructions, ["a", "b"]);
    }

    #[test]
    fn the_nearer_file_wins_in_whatever_order_they_were_found() {
        let (near, far) = (
            (".opencode/opencode.json", "{\"model\": \"p/near\"}"),
            ("opencode.json", "{\"model\": \"p/far\"}"),
        );
        for files in [[near, far], [far, near]] {
            assert_eq!(configure(&[], &files).unwrap().merged.settings.model.unwrap().model_id, "near");
        }
    }
}
