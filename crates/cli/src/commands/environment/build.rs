//! `flotilla env build` and `flotilla env check`: have an environment built by a session that is deleted afterwards.

use super::{
    layers::{get_log, list_all, stage, state, to_json},
    proposals, refusals,
};
use crate::{
    client::{Client, call},
    commands::session::{
        opening::{OpenedProject, open_project, open_repository},
        prompt::{self, CommandLimit},
    },
    exit::{Exit, is_answer},
    repository::source::RepositoryArgs,
    stream::tool_call,
    terminal::{output::Output, paint::harmless, show},
};
use anyhow::{Context as _, Result};
use domain::text;
use rpc::v1::{
    CreateSessionRequest, DeleteSessionRequest, Environment, EnvironmentVerdict, ListEnvironmentsRequest,
    ListMessagesRequest, Page,
};
use serde_json::Value;
use settings::proposal::{self, Proposal};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// Pause between two looks at a build.
const BUILD_POLL: Duration = Duration::from_millis(500);

/// `flotilla env check`.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    files: RepositoryArgs,
    /// Try it with the files of this project, by name or id, instead of a repository of yours.
    #[arg(long, value_name = "PROJECT", conflicts_with_all = ["repo", "base", "dirty"])]
    project: Option<String>,
    /// Allow the environment that the repository proposes, if it waits for an admin. Needs a key of one.
    #[arg(long)]
    allow: bool,
    #[command(flatten)]
    limit: CommandLimit,
    /// The command: a program with its arguments, or one text for bash. Without one, the environment is only built.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The environment that a person tries.
struct Trial {
    proposal: Proposal,
    /// Whether the person allows it.
    is_allowed: bool,
}

/// Has the environment of a project built.
pub(super) async fn run(client: &Client, output: &Output, named: &str) -> Result<Exit> {
    let opened = open_project(client, output, named).await?;
    with_session(client, output, opened, async |build| build_in(client, output, build).await).await
}

/// Has the environment of a repository built, and runs a command in it.
pub(super) async fn check(client: &Client, output: &Output, arguments: &CheckArgs) -> Result<Exit> {
    let opened = match &arguments.project {
        Some(named) => open_project(client, output, named).await?,
        None => {
            for path in arguments.files.list_uncommitted(&proposal::FILES)? {
                output.note(&format!(
                    "{path} has uncommitted changes, which do not count: this tries what the commit says; commit them first"
                ));
            }
            let files = arguments.files.read(&proposal::FILES)?;
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let proposal = proposal::find(&files)?;
            let opened = open_repository(client, output, &arguments.files).await?;
            match proposal.map(|proposal| Trial { proposal, is_allowed: arguments.allow }) {
                Some(trial) => {
                    for sentence in &trial.proposal.unused {
                        output.note(&format!("not used of {}: {}", trial.proposal.file, harmless(sentence)));
                    }
                    let allowed = allow(client, output, &opened, &trial).await?;
                    if allowed != Exit::Done {
                        return Ok(allowed);
                    }
                }
                None => output.note("the commit proposes no environment; this tries the one of the settings"),
            }
            opened
        }
    };
    with_session(client, output, opened, async |build| {
        let built = build_in(client, output, build).await?;
        if built != Exit::Done {
            return Ok(built);
        }
        // The first command, which opened the files, has shown why.
        if has_start_failure(client, build.session).await? {
            return Ok(Exit::Failed);
        }
        if arguments.command.is_empty() {
            return Ok(Exit::Done);
        }
        let command = command_line(&arguments.command);
        let ran = prompt::try_command(client, output, build.session, &command, arguments.limit).await?;
        if ran != Exit::Done {
            return Ok(ran);
        }
        exit_of(client, build.session).await
    })
    .await
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

/// Finds out whether sessions use the environment of a repository, and allows it if the person wants that. Done: they use it.
async fn allow(client: &Client, output: &Output, opened: &OpenedProject, trial: &Trial) -> Result<Exit> {
    let Trial { proposal, is_allowed } = trial;
    let digest = text::hex(&Sha256::digest(&proposal.document));
    let mut known = proposals::find_digest(client, &opened.project_id, &digest).await?;
    if known.is_none() {
        // A session proposes it when it opens its files, and only in an environment that is allowed already.
        output.note(&format!(
            "the gateway does not know the environment in {} yet. A first session opens the files to propose it, in the environment that was \
             allowed before or that of the settings: what follows is about that one",
            proposal.file
        ));
        let built =
            with_session(client, output, opened.clone(), async |build| build_in(client, output, build).await)
                .await?;
        if built == Exit::Interrupted {
            return Ok(built);
        }
        known = proposals::find_digest(client, &opened.project_id, &digest).await?;
    }
    match known.map(|known| known.verdict()) {
        Some(EnvironmentVerdict::Allowed) => Ok(Exit::Done),
        Some(_) if *is_allowed => {
            proposals::decide_digest(client, &opened.project_id, digest, EnvironmentVerdict::Allowed).await?;
            output.note(&format!(
                "the environment in {} is allowed; what follows is about this one",
                proposal.file
            ));
            Ok(Exit::Done)
        }
        _ => {
            output.note(&format!(
                "sessions do not use the environment in {}; allow it with `flotilla env allow {digest} --project {}`, or with --allow",
                proposal.file, opened.project_id
            ));
            Ok(Exit::Failed)
        }
    }
}

/// Does something with a new session, shows what the session was refused by the network, and deletes it.
async fn with_session(
    client: &Client,
    output: &Output,
    opened: OpenedProject,
    work: impl AsyncFnOnce(PendingBuild<'_>) -> Result<Exit>,
) -> Result<Exit> {
    let OpenedProject { project_id, source, remote } = opened;
    let request = ListEnvironmentsRequest { project_id: project_id.clone() };
    let before = list_all(client, &request).await?;
    let session = CreateSessionRequest {
        project_id,
        source,
        title: "flotilla env".to_owned(),
        remote,
        idempotency_key: prompt::random_key()?,
        ..CreateSessionRequest::default()
    };
    let create = async || client.sessions().create_session(session.clone()).await;
    let id = call("create the session", create).await?.session.unwrap_or_default().id;
    let done = work(PendingBuild { session: &id, request: &request, before: &before }).await;
    let told = match done {
        Ok(exit) if exit != Exit::Interrupted => refusals::show(client, output, &id).await,
        Ok(_) | Err(_) => Ok(()),
    };
    let delete =
        async || client.sessions().delete_session(DeleteSessionRequest { session_id: id.clone() }).await;
    if let Err(error) = call("delete the session", delete).await {
        output.note(&format!("session {id} stays: {error:#}"));
    }
    let exit = done?;
    told.map(|()| exit)
}

/// Opens the files of a session, which needs the environment, and shows the logs of its setup and its install meanwhile.
async fn build_in(client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<Exit> {
    let mut shown = BuildLog::default();
    let opened = shown.follow(client, output, build).await;
    shown.finish(output)?;
    // If the files are not open, the turn says what is missing, such as the image.
    if shown.builds.is_empty() && matches!(opened, Ok(Exit::Done)) {
        output.note("nothing was built: the environment is there, or no script makes one");
    }
    opened
}

/// For how long it was built, or is being built at `now_ms`.
fn seconds(environment: &Environment, now_ms: i64) -> i64 {
    let end_ms = if environment.ended_at_ms == 0 { now_ms } else { environment.ended_at_ms };
    // The clocks of two machines differ.
    (end_ms.saturating_sub(environment.started_at_ms) / 1_000).max(0)
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

/// A build that a new session needs.
#[derive(Clone, Copy)]
struct PendingBuild<'a> {
    session: &'a str,
    /// Lists the environments of its project.
    request: &'a ListEnvironmentsRequest,
    /// Those that there were before.
    before: &'a [Environment],
}

/// What is shown of the builds that a session needs: its setup, and then its install.
#[derive(Default)]
struct BuildLog {
    /// Key and beginning of each build that was shown.
    builds: Vec<(String, i64)>,
    /// The one that is being shown.
    environment: Option<Environment>,
    /// Its log so far.
    log: Vec<u8>,
    /// The beginning of a line in it, which is shown with its end.
    line: Vec<u8>,
}

impl BuildLog {
    /// Opens the files of the session, and writes the logs until they are open.
    async fn follow(&mut self, client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<Exit> {
        let opening = prompt::open_files(client, output, build.session);
        tokio::pin!(opening);
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                () = tokio::time::sleep(BUILD_POLL) => {}
            }
            match self.go_on(client, output, build).await {
                // The opening waits for a gateway that is away, and says so.
                Err(error) if !is_answer(&error) => {}
                result => result?,
            }
        };
        self.go_on(client, output, build).await?;
        opened
    }

    /// Writes what is new in the log of each build until one has not ended yet, or the next one has not begun.
    async fn go_on(&mut self, client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<()> {
        loop {
            if self.environment.is_none() {
                self.begin_next(client, output, build).await?;
            }
            let Some(environment) = &mut self.environment else { return Ok(()) };
            let answer = get_log(client, environment.key.clone()).await?;
            if let Some(newer) = answer.environment {
                // It may have begun again since it was listed, and is the same build.
                if let Some(shown) = self.builds.last_mut() {
                    *shown = build_id(&newer);
                }
                *environment = newer;
            }
            let has_ended = environment.ended_at_ms != 0;
            // Of a long log, only the end is kept.
            let new = answer.log.strip_prefix(self.log.as_slice()).unwrap_or(&answer.log);
            self.line.extend_from_slice(new);
            let end = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.line.drain(..end).collect();
            self.log = answer.log;
            write_log(output, &lines)?;
            if !has_ended {
                return Ok(());
            }
            self.finish(output)?;
        }
    }

    /// Begins to show the oldest build that did not exist or had not ended before.
    async fn begin_next(&mut self, client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<()> {
        let is_old = |new: &Environment| {
            build.before.iter().any(|old| build_id(old) == build_id(new) && old.ended_at_ms != 0)
                || self.builds.contains(&build_id(new))
        };
        let environments = list_all(client, build.request).await?;
        let new = environments.into_iter().filter(|environment| !is_old(environment));
        if let Some(next) = new.min_by_key(|environment| environment.started_at_ms) {
            output.note(&format!("{} {} runs", stage(&next), next.key));
            self.builds.push(build_id(&next));
            self.environment = Some(next);
            self.log.clear();
        }
        Ok(())
    }

    /// Writes the last line of a log, also if the program did not end it, and how the build ended.
    fn finish(&mut self, output: &Output) -> Result<()> {
        let mut line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            line.push(b'\n');
        }
        write_log(output, &line)?;
        let Some(environment) = self.environment.take() else { return Ok(()) };
        if output.is_json() {
            return output.json(&to_json(&environment));
        }
        let seconds = seconds(&environment, show::now_ms());
        let (stage, state) = (stage(&environment), state(&environment));
        output.note(&format!("{stage} {}: {state} after {seconds} s", environment.key));
        Ok(())
    }
}

/// Key and beginning of a build.
fn build_id(environment: &Environment) -> (String, i64) {
    (environment.key.clone(), environment.started_at_ms)
}

fn write_log(output: &Output, lines: &[u8]) -> Result<()> {
    if output.is_json() { Ok(()) } else { output.write(&harmless(&String::from_utf8_lossy(lines))) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::{fake::Fake, repository::git::Git};
    use rpc::v1::ProposedEnvironment;
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

    #[tokio::test]
    async fn an_environment_is_tried_when_an_admin_has_allowed_it() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_str().unwrap();
        commit(directory.path(), "environment:\n  instal: x\n");
        let refused = fake.run(&output, &["env", "check", "--repo", root]).await.unwrap_err();
        assert!(refused.to_string().contains(".flotilla/config.yaml:2:3"), "{refused}");
        commit(directory.path(), "environment:\n  install: npm ci\n");
        assert_eq!(fake.run(&output, &["env", "check", "--repo", root]).await.unwrap(), Exit::Failed);
        let notes = output.take_notes();
        assert!(notes.contains("sessions do not use the environment"), "{notes}");
        assert!(notes.contains("what follows is about that one"), "{notes}");
        let digest = text::hex(&Sha256::digest(r#"{"environment":{"install":"npm ci"}}"#));
        let proposed = ProposedEnvironment { digest: digest.clone(), ..ProposedEnvironment::default() };
        fake.0.lock().unwrap().proposed = vec![proposed.clone()];
        assert_eq!(fake.run(&output, &["env", "check", "--repo", root]).await.unwrap(), Exit::Failed);
        fake.0.lock().unwrap().orders.clear();
        assert_eq!(
            fake.run(&output, &["env", "check", "--repo", root, "--allow"]).await.unwrap(),
            Exit::Done
        );
        assert!(fake.0.lock().unwrap().orders.contains(&format!("decide Allowed {digest}")));
        let verdict = EnvironmentVerdict::Allowed.into();
        fake.0.lock().unwrap().proposed = vec![ProposedEnvironment { verdict, ..proposed }];
        output.take_notes();
        assert_eq!(fake.run(&output, &["env", "check", "--repo", root]).await.unwrap(), Exit::Done);
        let notes = output.take_notes();
        let refused =
            "registry.npmjs.org was refused 2 times (egress_host_not_allowed): `environment.network.allow`";
        assert!(notes.contains(refused) && !notes.contains("pypi.org"), "{notes}");
    }

    #[tokio::test]
    async fn files_that_are_not_committed_are_named_before_anything_begins() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        fake.0.lock().unwrap().events = vec![("session.idle", json!({"outcome": "done"}))];
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
    fn a_build_that_runs_has_lasted_until_now() {
        let environment =
            |ended_at_ms| Environment { started_at_ms: 10_000, ended_at_ms, ..Environment::default() };
        assert_eq!(seconds(&environment(0), 14_500), 4);
        assert_eq!(seconds(&environment(12_000), 99_000), 2);
        assert_eq!(seconds(&environment(0), 9_000), 0);
    }

    #[test]
    fn the_last_line_of_a_log_ends() {
        let output = Output::kept(false);
        let mut log = BuildLog { line: b"npm ERR!".to_vec(), ..BuildLog::default() };
        log.finish(&output).unwrap();
        log.finish(&output).unwrap();
        assert_eq!(output.take(), "npm ERR!\n");
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
