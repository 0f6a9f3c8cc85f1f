//! `flotilla env check`: builds the environment of a repository, runs a command in it, and allows it if all of that went well.

use super::{
    build::{Built, NOTHING_BUILT, NewTrial, PendingBuild, build_in, with_session},
    proposals,
};
use crate::{
    client::{Client, call},
    commands::session::{
        opening::{open_project, open_repository},
        prompt::{self, CommandLimit},
    },
    exit::{self, Exit},
    repository::source::RepositoryArgs,
    stream::tool_call,
    terminal::{output::Output, paint::harmless},
};
use anyhow::{Context as _, Result};
use domain::text;
use rpc::v1::{
    EnvironmentVerdict, ErrorCode, ListMessagesRequest, Page, ProposedEnvironment, SetProjectSourceRequest,
};
use serde_json::Value;
use settings::proposal::{self, Proposal};
use sha2::{Digest as _, Sha256};

/// `flotilla env check`.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    files: RepositoryArgs,
    /// Try it with the files of this project, by name or id, instead of a repository of yours.
    #[arg(long, value_name = "PROJECT", conflicts_with_all = ["repo", "base", "dirty"])]
    project: Option<String>,
    /// Try the environment that the repository proposes although no admin has allowed it, and allow it for all sessions if the check passes: it is built, and
    /// the command ends with 0. Needs a key of an admin.
    #[arg(long)]
    allow: bool,
    #[command(flatten)]
    limit: CommandLimit,
    /// The command: a program with its arguments, or one text for bash. Without one, the environment is only built.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Has the environment of a repository built, and runs a command in it.
pub(super) async fn run(client: &Client, output: &Output, arguments: &CheckArgs) -> Result<Exit> {
    let opened = match &arguments.project {
        Some(named) => open_project(client, output, named).await?,
        None => {
            let proposal = read(output, &arguments.files)?;
            let opened = open_repository(client, output, &arguments.files).await?;
            let is_known = match proposal {
                Some(proposal) if !arguments.allow => {
                    let digest = text::hex(&Sha256::digest(&proposal.document));
                    proposals::find_digest(client, &opened.project_id, &digest).await?
                }
                Some(_) | None => None,
            };
            // Nothing is built in vain.
            if let Some(waiting) = is_known.filter(|known| !is_allowed(known)) {
                output.note(&not_used(&waiting, &opened.project_id));
                return Ok(Exit::Failed);
            }
            opened
        }
    };
    let (project_id, renewal) = (opened.project_id.clone(), opened.renewal.clone());
    let trial = NewTrial { opened, is_own: arguments.allow };
    with_session(client, output, trial, async |build| {
        // Boxed because the future is large.
        let tried = Box::pin(try_out(client, output, build, arguments)).await;
        match &tried {
            Ok(Trial { exit: Exit::Done, proposed }) => {
                if let Some(proposed) = proposed.as_ref().filter(|it| arguments.allow && !is_allowed(it)) {
                    allow(client, output, proposed, &project_id).await?;
                }
                if let Some(renewal) = renewal {
                    renew(client, output, renewal).await?;
                }
            }
            Ok(Trial { exit: Exit::Interrupted, .. }) => {}
            Ok(_) | Err(_) if arguments.allow => {
                output.note("the check did not pass, so --allow allowed nothing");
            }
            Ok(_) | Err(_) => {}
        }
        tried.map(|tried| tried.exit)
    })
    .await
}

/// What came of a trial.
struct Trial {
    exit: Exit,
    /// What the repository of its session proposes, as it was read before the command ran.
    proposed: Option<ProposedEnvironment>,
}

/// Reads what the commit of a local repository proposes, and tells which of its files have changes that do not count. `None`: nothing, or the server clones the
/// repository.
///
/// # Errors
/// The mistakes of the file.
fn read(output: &Output, files: &RepositoryArgs) -> Result<Option<Proposal>> {
    for path in files.list_uncommitted(&proposal::FILES)? {
        output.note(&format!(
            "{path} has uncommitted changes, which do not count: this tries what the commit says; commit them first"
        ));
    }
    let files = files.read(&proposal::FILES)?;
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    Ok(proposal::find(&files)?)
}

/// Builds the environment of a session, and runs the command in it.
async fn try_out(
    client: &Client,
    output: &Output,
    build: PendingBuild<'_>,
    arguments: &CheckArgs,
) -> Result<Trial> {
    let session = build.session;
    let Built { exit, is_new } = build_in(client, output, build).await?;
    if exit != Exit::Done {
        return Ok(Trial { exit, proposed: None });
    }
    let proposed = proposals::find_of_session(client, session).await?;
    match &proposed {
        Some(proposed) => {
            for sentence in &proposed.unused {
                output.note(&format!("not used of {}: {}", proposed.file, harmless(sentence)));
            }
            if !arguments.allow && !is_allowed(proposed) {
                output.note(&not_used(proposed, &build.request.project_id));
                return Ok(Trial { exit: Exit::Failed, proposed: None });
            }
        }
        None => output.note("the commit proposes no environment; this tries the one of the settings"),
    }
    if !is_new {
        output.note(NOTHING_BUILT);
    }
    // The first command, which opened the files, has shown why.
    let exit = if has_start_failure(client, session).await? {
        Exit::Failed
    } else {
        run_command(client, output, session, arguments).await?
    };
    Ok(Trial { exit, proposed })
}

/// Runs the command of a person, if there is one, and gives how it ended.
async fn run_command(client: &Client, output: &Output, session: &str, arguments: &CheckArgs) -> Result<Exit> {
    if arguments.command.is_empty() {
        return Ok(Exit::Done);
    }
    let command = command_line(&arguments.command);
    let ran = prompt::try_command(client, output, session, &command, arguments.limit).await?;
    if ran != Exit::Done {
        return Ok(ran);
    }
    exit_of(client, session).await
}

/// Allows exactly what a session has tried.
async fn allow(
    client: &Client,
    output: &Output,
    proposed: &ProposedEnvironment,
    project_id: &str,
) -> Result<()> {
    let ProposedEnvironment { file, digest, .. } = proposed;
    proposals::decide_digest(client, project_id, digest.clone(), EnvironmentVerdict::Allowed).await?;
    output.note(&format!(
        "the check passed, so the environment in {file} is allowed; `flotilla env deny {digest} --project {project_id}` takes that back"
    ));
    Ok(())
}

/// Gives a project the files that passed: sessions that name the project would begin with the older ones, of which the check says nothing.
async fn renew(client: &Client, output: &Output, renewal: SetProjectSourceRequest) -> Result<()> {
    let set = async || client.projects().set_project_source(renewal.clone()).await;
    match call("renew the files of the project", set).await {
        Ok(answer) => {
            let project = answer.project.unwrap_or_default();
            output.note(&format!("{} begins with this commit from now on", project.name));
            Ok(())
        }
        // The check has passed, whoever ran it.
        Err(error) if exit::has_code(&error, ErrorCode::ScopeMissing) => {
            output.note(
                "the project keeps its older files, because only an admin may replace them; sessions that name the project begin with those",
            );
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn is_allowed(proposed: &ProposedEnvironment) -> bool {
    proposed.verdict() == EnvironmentVerdict::Allowed
}

/// Why sessions do not have what their repository proposes, and what changes that.
fn not_used(proposed: &ProposedEnvironment, project_id: &str) -> String {
    let ProposedEnvironment { file, digest, .. } = proposed;
    format!(
        "sessions do not use the environment in {file}: it is {}; `flotilla env allow {digest} --project {project_id}` allows it, and --allow tries it \
         and allows it if the check passes",
        proposals::verdict(proposed)
    )
}

/// The line for bash that runs these words. A single word may be a line of its own.
fn command_line(words: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&byte);
    let word = |word: &String| {
        let is_plain = !word.is_empty() && word.bytes().all(is_plain);
        if is_plain { word.clone() } else { text::shell_word(word) }
    };
    match words {
        [line] => line.clone(),
        words => words.iter().map(word).collect::<Vec<_>>().join(" "),
    }
}

/// Whether `environment.start` of a session failed.
async fn has_start_failure(client: &Client, session: &str) -> Result<bool> {
    let parts = newest_parts(client, session).await?;
    Ok(parts.iter().any(|part| tool_call::start_failure(&part["state"]).is_some()))
}

/// How the newest command of a session ended.
async fn exit_of(client: &Client, session: &str) -> Result<Exit> {
    let parts = newest_parts(client, session).await?;
    let exit = parts.iter().rev().find_map(|part| tool_call::exit_code(&part["state"]));
    Ok(exit.map_or(Exit::Failed, Exit::of_command))
}

/// The parts of the newest message of a session.
async fn newest_parts(client: &Client, session: &str) -> Result<Vec<Value>> {
    let page = Some(Page { limit: 1, ..Page::default() });
    let request = ListMessagesRequest { session_id: session.to_owned(), page };
    let list = async || client.messages().list_messages(request.clone()).await;
    let messages = call("list messages", list).await?.messages;
    let parts = messages.iter().flat_map(|message| &message.parts);
    let parts = parts.map(|part| serde_json::from_str::<Value>(&part.json).context("read a message"));
    parts.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{repository::git::Git, tests::fake::Fake};
    use rpc::v1::{Project, Source, source};
    use serde_json::json;
    use std::{fs, path::Path};

    /// Commits a text as the file that proposes an environment.
    fn commit(directory: &Path, text: &str) {
        let git = Git::at(directory);
        fs::create_dir_all(directory.join(".flotilla")).unwrap();
        fs::write(directory.join(proposal::FILE), text).unwrap();
        git.run(&["init", "--quiet"]).unwrap();
        git.run(&["add", "--all"]).unwrap();
        git.run(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x"]).unwrap();
    }

    /// What the repository of the session proposes; it waits for an admin.
    fn waiting() -> ProposedEnvironment {
        let digest = text::hex(&Sha256::digest(r#"{"environment":{"install":"npm ci"}}"#));
        ProposedEnvironment { digest, file: proposal::FILE.to_owned(), ..ProposedEnvironment::default() }
    }

    fn idle(outcome: &str) -> Vec<(&'static str, Value)> {
        vec![("session.idle", json!({"outcome": outcome}))]
    }

    #[tokio::test]
    async fn an_environment_is_tried_when_an_admin_has_allowed_it() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.0.lock().unwrap().events = idle("done");
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap();
        let check = async || fake.run(&output, &["env", "check", "--repo", root]).await;
        commit(directory.path(), "environment:\n  instal: x\n");
        let refused = check().await.unwrap_err();
        assert!(refused.to_string().contains(".flotilla/config.yaml:2:3"), "{refused}");
        commit(directory.path(), "environment:\n  install: npm ci\n");
        // A session proposes it, and none of it is built in its place if it is known.
        fake.0.lock().unwrap().of_session = Some(waiting());
        for is_known in [false, true] {
            if is_known {
                fake.0.lock().unwrap().proposed = vec![waiting()];
            }
            assert_eq!(check().await.unwrap(), Exit::Failed);
            let notes = output.take_notes();
            let told = format!("it is waiting; `flotilla env allow {} --project prj_1`", waiting().digest);
            assert!(notes.contains(&told), "{notes}");
            let calls = std::mem::take(&mut fake.0.lock().unwrap().calls);
            assert_eq!(calls.is_empty(), is_known, "{calls:?}");
        }
        let allowed = ProposedEnvironment { verdict: EnvironmentVerdict::Allowed.into(), ..waiting() };
        {
            let mut state = fake.0.lock().unwrap();
            (state.proposed, state.of_session) = (vec![allowed.clone()], Some(allowed));
        }
        assert_eq!(check().await.unwrap(), Exit::Done);
        let notes = output.take_notes();
        let refused =
            "registry.npmjs.org was refused 2 times (egress_host_not_allowed): `environment.network.allow`";
        assert!(notes.contains(refused) && !notes.contains("pypi.org"), "{notes}");
        assert!(!fake.0.lock().unwrap().session.tries_environment);
    }

    #[tokio::test]
    async fn what_the_session_proposed_is_allowed_if_the_check_passed() {
        let directory = tempfile::tempdir().unwrap();
        commit(directory.path(), "environment:\n  install: npm ci\n");
        let root = directory.path().to_str().unwrap();
        for place in [["--repo", root], ["--repo", "https://git.acme.dev/a.git"], ["--project", "shop"]] {
            for (outcome, is_passed) in [("done", true), ("failed", false)] {
                let (fake, output) = (Fake::default(), Output::kept(false));
                {
                    let mut state = fake.0.lock().unwrap();
                    state.projects = vec![Project {
                        id: "prj_1".to_owned(),
                        name: "shop".to_owned(),
                        ..Project::default()
                    }];
                    (state.events, state.of_session) = (idle(outcome), Some(waiting()));
                }
                let words = ["env", "check", place[0], place[1], "--allow"];
                let exit = fake.run(&output, &words).await.unwrap();
                let state = fake.0.lock().unwrap();
                assert_eq!(exit == Exit::Done, is_passed, "{place:?}");
                let order = format!("decide Allowed {}", waiting().digest);
                let decided = state.orders.iter().filter(|order| order.starts_with("decide")).cloned();
                assert_eq!(decided.collect::<Vec<_>>(), if is_passed { vec![order] } else { vec![] });
                let notes = output.take_notes();
                let told = if is_passed { "takes that back" } else { "--allow allowed nothing" };
                assert!(state.session.tries_environment && notes.contains(told), "{notes}");
            }
        }
    }

    #[tokio::test]
    async fn a_project_of_the_same_place_begins_with_the_commit_that_passed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("shop");
        fs::create_dir(&root).unwrap();
        commit(&root, "environment:\n  install: npm ci\n");
        let root = root.to_str().unwrap();
        let bundle =
            |id: &str| Source { from: Some(source::From::BundleId(id.to_owned())), ..Source::default() };
        let url =
            Source { from: Some(source::From::GitUrl("https://h/shop".to_owned())), ..Source::default() };
        let (old, new) = (bundle("bun_0"), bundle("bun_1"));
        let shop = |source: &Source| Project {
            id: "prj_1".to_owned(),
            name: "shop".to_owned(),
            source: Some(source.clone()),
            ..Project::default()
        };
        let allowed = ProposedEnvironment { verdict: EnvironmentVerdict::Allowed.into(), ..waiting() };
        for (outcome, is_elsewhere, before, base, after) in [
            ("done", false, &old, None, &new),
            ("failed", false, &old, None, &old),
            ("done", true, &old, None, &old),
            ("done", false, &old, Some("--base=HEAD"), &old),
            ("done", false, &url, None, &url),
        ] {
            let (fake, output) = (Fake::default(), Output::kept(false));
            {
                let mut state = fake.0.lock().unwrap();
                (state.projects, state.is_elsewhere) = (vec![shop(before)], is_elsewhere);
                (state.events, state.of_session) = (idle(outcome), Some(allowed.clone()));
            }
            let words: Vec<&str> = ["env", "check", "--repo", root].into_iter().chain(base).collect();
            fake.run(&output, &words).await.unwrap();
            let source = fake.0.lock().unwrap().projects[0].source.clone();
            assert_eq!(source.as_ref(), Some(after), "{outcome} {is_elsewhere} {base:?}");
        }
    }

    #[tokio::test]
    async fn files_that_are_not_committed_are_named_before_anything_begins() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.0.lock().unwrap().events = idle("done");
        let directory = tempfile::tempdir().unwrap();
        commit(directory.path(), "environment:\n  install: npm ci\n");
        let below = directory.path().join("below");
        fs::create_dir(&below).unwrap();
        let check = async |more: &[&str]| {
            let arguments = [&["env", "check", "--repo", below.to_str().unwrap()][..], more].concat();
            fake.run(&output, &arguments).await.unwrap();
            output.take_notes()
        };
        let notes = check(&[]).await;
        assert!(!notes.contains("uncommitted"), "{notes}");
        fs::write(directory.path().join(proposal::FILE), "environment:\n  install: npm install\n").unwrap();
        fs::write(directory.path().join(".devcontainer.json"), "{}").unwrap();
        let notes = check(&[]).await;
        let told =
            [proposal::FILE, ".devcontainer.json"].map(|path| format!("{path} has uncommitted changes"));
        let (before, _) = notes.split_once("sending ").unwrap();
        assert!(told.iter().all(|told| before.contains(told)), "{notes}");
        let notes = check(&["--base", "HEAD"]).await;
        assert!(!notes.contains("uncommitted"), "{notes}");
    }

    #[test]
    fn words_keep_their_borders_and_a_single_word_is_a_line() {
        for (words, line) in [
            (&["npm", "test", "--", "--grep=a,b"][..], "npm test -- --grep=a,b"),
            (&["npm ci && npm test"], "npm ci && npm test"),
            (&["sh", "-c", "echo it's $HOME"], r"sh -c 'echo it'\''s $HOME'"),
            (&["printf", ""], "printf ''"),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(command_line(&words), line);
        }
    }
}
