//! Repositories with a number of files, as sources of sessions.

use crate::api::Api;
use rpc::v1;
use testkit::git::{Repository, repository};

/// A repository with instructions, a skill, settings and this many files of some lines.
pub(super) fn repository_of(files: usize) -> Repository {
    let file =
        |number| (format!("src/d{}/f{number}.rs", number % 100), format!("fn f{number}() {{}}\n").repeat(20));
    let paths: Vec<_> = (0..files).map(file).collect();
    let skill = "---\nname: deploy\ndescription: ships it\n---\nRun it.\n";
    let guidance =
        [("AGENTS.md", "Be brief.\n"), (".claude/skills/deploy/SKILL.md", skill), ("opencode.json", "{}")];
    let files = paths.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    repository(&files.chain(guidance).collect::<Vec<_>>())
}

/// Uploads a repository, once for all sessions that begin with it.
pub(super) async fn upload(api: &Api, repository: &Repository) -> v1::Source {
    let from = Some(v1::source::From::BundleId(api.upload(&repository.bundle()).await));
    v1::Source { from, revision: String::new() }
}
