//! `flotilla env build`: has an environment built by a session that is deleted afterwards, and shows the logs.

use super::{
    layers::{get_log, list_all, stage, state, to_json},
    refusals,
};
use crate::{
    client::{Client, call},
    commands::session::{
        opening::{OpenedProject, open_project},
        prompt,
    },
    exit::{Exit, is_answer},
    terminal::{output::Output, paint::harmless, show},
};
use anyhow::Result;
use rpc::v1::{CreateSessionRequest, DeleteSessionRequest, Environment, ListEnvironmentsRequest};
use std::time::Duration;

/// Pause between two looks at a build.
const BUILD_POLL: Duration = Duration::from_millis(500);
/// Tells a person who waits for a log that there is none.
pub(super) const NOTHING_BUILT: &str = "nothing was built: the environment is there, or no script makes one";

/// A session that tries an environment.
pub(super) struct NewTrial {
    pub(super) opened: OpenedProject,
    /// Whether it has the environment that its repository proposes, allowed or not.
    pub(super) is_own: bool,
}

/// Has the environment of a project built.
pub(super) async fn run(client: &Client, output: &Output, named: &str) -> Result<Exit> {
    let opened = open_project(client, output, named).await?;
    let trial = NewTrial { opened, is_own: false };
    with_session(client, output, trial, async |build| {
        let Built { exit, is_new } = build_in(client, output, build).await?;
        if exit == Exit::Done && !is_new {
            output.note(NOTHING_BUILT);
        }
        Ok(exit)
    })
    .await
}

/// Does something with a new session, shows what the session was refused by the network, and deletes it.
pub(super) async fn with_session(
    client: &Client,
    output: &Output,
    trial: NewTrial,
    work: impl AsyncFnOnce(PendingBuild<'_>) -> Result<Exit>,
) -> Result<Exit> {
    let NewTrial { opened: OpenedProject { project_id, source, remote, renewal: _ }, is_own } = trial;
    let request = ListEnvironmentsRequest { project_id: project_id.clone() };
    let before = list_all(client, &request).await?;
    let session = CreateSessionRequest {
        project_id,
        source,
        title: "flotilla env".to_owned(),
        tries_environment: is_own,
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

/// How an opening ended that needs the environment.
pub(super) struct Built {
    pub(super) exit: Exit,
    /// Whether something was built for it.
    pub(super) is_new: bool,
}

/// Opens the files of a session, which needs the environment, and shows the logs of its setup and its install meanwhile.
pub(super) async fn build_in(client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<Built> {
    let mut shown = BuildLog::default();
    let opened = shown.follow(client, output, build).await;
    shown.finish(output)?;
    // If the files are not open, the turn says what is missing, such as the image.
    Ok(Built { exit: opened?, is_new: !shown.builds.is_empty() })
}

/// For how long it was built, or is being built at `now_ms`.
fn seconds(environment: &Environment, now_ms: i64) -> i64 {
    let end_ms = if environment.ended_at_ms == 0 { now_ms } else { environment.ended_at_ms };
    // The clocks of two machines differ.
    (end_ms.saturating_sub(environment.started_at_ms) / 1_000).max(0)
}

/// A build that a new session needs.
#[derive(Clone, Copy)]
pub(super) struct PendingBuild<'a> {
    pub(super) session: &'a str,
    /// Lists the environments of its project.
    pub(super) request: &'a ListEnvironmentsRequest,
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
    #![allow(clippy::unwrap_used)]
    use super::*;

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
}
