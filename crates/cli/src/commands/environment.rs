//! `flotilla env`: what the setups and installs of projects made on the sandbox machine.

use super::{
    project,
    session::{
        opening::{OpenedProject, open_project},
        prompt,
    },
};
use crate::{
    client::{Client, call},
    exit::Exit,
    terminal::{
        output::{ListText, Output},
        paint::{Paint, harmless, one_line},
        show,
        table::{Side, Table},
    },
};
use anyhow::Result;
use rpc::v1::{
    CreateSessionRequest, DeleteSessionRequest, Environment, EnvironmentStage, EnvironmentState,
    GetEnvironmentLogRequest, GetEnvironmentLogResponse, ListEnvironmentsRequest, Project,
    RemoveEnvironmentRequest,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Pause between two looks at a build.
const BUILD_POLL: Duration = Duration::from_millis(500);

/// Characters of the name of a project in the table.
const NAME_CHARS: usize = 40;

/// `flotilla env`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnvironmentArgs {
    #[command(subcommand)]
    command: EnvironmentCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EnvironmentCommand {
    /// List the environments, newest build first.
    Ls {
        /// Only those of this project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Have the setup and the install of a project built now, if they are not there, and show what the first of them prints. A session of the project is opened for it and deleted
    /// afterwards.
    Build {
        /// The project, by name or id.
        #[arg(long, value_name = "PROJECT")]
        project: String,
    },
    /// Show what the newest build of an environment printed; of a long output, the end.
    Log {
        /// The key of the environment.
        key: String,
    },
    /// Remove an environment that no session uses, with its log. The next session that needs it builds it again.
    Rm {
        /// The key of the environment.
        key: String,
    },
}

pub(crate) async fn run(client: &Client, output: &Output, arguments: EnvironmentArgs) -> Result<Exit> {
    match arguments.command {
        EnvironmentCommand::Ls { project } => list(client, output, project).await?,
        EnvironmentCommand::Build { project } => return build(client, output, &project).await,
        EnvironmentCommand::Log { key } => log(client, output, key).await?,
        EnvironmentCommand::Rm { key } => {
            let request = RemoveEnvironmentRequest { key: key.clone() };
            let remove = async || client.environments().remove_environment(request.clone()).await;
            call("remove the environment", remove).await?;
            let object = json!({"type": "environment_removal", "key": key, "is_removed": true});
            output.result(&format!("{key} is removed"), &object)?;
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, output: &Output, named: Option<String>) -> Result<()> {
    let project_id = match &named {
        None => String::new(),
        Some(named) => project::find(client, named).await?.id,
    };
    let request = ListEnvironmentsRequest { project_id };
    let environments = list_all(client, &request).await?;
    let needs_names = !output.is_json() && !environments.is_empty();
    let projects = if needs_names { project::list_all(client).await? } else { vec![] };
    let none = "no environments; `environment.setup` or `environment.install` in the settings makes one when a session needs it";
    output.list(
        &environments,
        &ListText { to_json, table: &|environments, paint| table(environments, &projects, paint), none },
    )
}

async fn list_all(client: &Client, request: &ListEnvironmentsRequest) -> Result<Vec<Environment>> {
    let list = async || client.environments().list_environments(request.clone()).await;
    Ok(call("list the environments", list).await?.environments)
}

/// Opens the files of a new session, which needs the environment, and shows the log of the build meanwhile.
async fn build(client: &Client, output: &Output, named: &str) -> Result<Exit> {
    let OpenedProject { project_id, .. } = open_project(client, output, named).await?;
    let request = ListEnvironmentsRequest { project_id: project_id.clone() };
    let before = list_all(client, &request).await?;
    let session = CreateSessionRequest {
        project_id,
        title: "flotilla env build".to_owned(),
        idempotency_key: prompt::random_key()?,
        ..CreateSessionRequest::default()
    };
    let create = async || client.sessions().create_session(session.clone()).await;
    let id = call("create the session", create).await?.session.unwrap_or_default().id;
    let mut shown = BuildLog::default();
    let opened =
        shown.follow(client, output, PendingBuild { session: &id, request: &request, before: &before }).await;
    let delete =
        async || client.sessions().delete_session(DeleteSessionRequest { session_id: id.clone() }).await;
    if let Err(error) = call("delete the session", delete).await {
        output.note(&format!("session {id} stays: {error:#}"));
    }
    match &shown.environment {
        Some(environment) if output.is_json() => output.json(&to_json(environment))?,
        Some(environment) => {
            let seconds = environment.ended_at_ms.saturating_sub(environment.started_at_ms) / 1_000;
            let (stage, state) = (stage(environment), state(environment));
            output.note(&format!("{stage} {}: {state} after {seconds} s", environment.key));
        }
        None if matches!(opened, Ok(Exit::Done)) => {
            output.note(
                "nothing was built: the environment is there, or the settings have no script that makes one",
            );
        }
        // The turn says what is missing, such as the image.
        None => {}
    }
    opened
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

/// What is shown of a build.
#[derive(Default)]
struct BuildLog {
    /// The build.
    environment: Option<Environment>,
    /// Its log so far.
    log: Vec<u8>,
}

impl BuildLog {
    /// Opens the files of the session, and writes the log until they are open.
    async fn follow(&mut self, client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<Exit> {
        let opening = prompt::open_files(client, output, build.session);
        tokio::pin!(opening);
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                () = tokio::time::sleep(BUILD_POLL) => {}
            }
            self.go_on(client, output, build).await?;
        };
        self.go_on(client, output, build).await?;
        opened
    }

    /// Looks for the build, which did not exist or had not ended before, and writes what is new in its log.
    async fn go_on(&mut self, client: &Client, output: &Output, build: PendingBuild<'_>) -> Result<()> {
        let PendingBuild { request, before, .. } = build;
        let key = match &self.environment {
            Some(environment) => environment.key.clone(),
            None => {
                let environments = list_all(client, request).await?;
                let is_old = |new: &Environment| {
                    before.iter().any(|old| {
                        old.key == new.key && old.started_at_ms == new.started_at_ms && old.ended_at_ms != 0
                    })
                };
                match environments.into_iter().find(|environment| !is_old(environment)) {
                    Some(environment) => environment.key,
                    None => return Ok(()),
                }
            }
        };
        let answer = get_log(client, key).await?;
        self.environment = answer.environment;
        // Of a long log, only the end is kept.
        let new = answer.log.strip_prefix(self.log.as_slice()).unwrap_or(&answer.log);
        if !output.is_json() {
            output.write(&harmless(&String::from_utf8_lossy(new)))?;
        }
        self.log = answer.log;
        Ok(())
    }
}

async fn get_log(client: &Client, key: String) -> Result<GetEnvironmentLogResponse> {
    let request = GetEnvironmentLogRequest { key };
    let get = async || client.environments().get_environment_log(request.clone()).await;
    call("read the log", get).await
}

async fn log(client: &Client, output: &Output, key: String) -> Result<()> {
    let answer = get_log(client, key).await?;
    let environment = answer.environment.unwrap_or_default();
    let text = String::from_utf8_lossy(&answer.log);
    if output.is_json() {
        let object = json!({
            "type": "environment_log", "key": environment.key, "state": state(&environment), "code": optional(&environment.code),
            "text": text,
        });
        return output.json(&object);
    }
    output.page(&harmless(&text))?;
    if !environment.message.is_empty() {
        // The last lines are a part of the log already.
        output.note(&format!("{} ({})", one_line(&environment.message, 200), environment.code));
    }
    Ok(())
}

fn table(environments: &[Environment], projects: &[Project], paint: Paint) -> String {
    let now_ms = show::now_ms();
    let age =
        |at_ms: i64| if at_ms == 0 { "–".to_owned() } else { show::age(now_ms.saturating_sub(at_ms)) };
    let mut table = Table::new([
        ("PROJECT", Side::Left),
        ("STAGE", Side::Left),
        ("STATE", Side::Left),
        ("BUILT", Side::Right),
        ("SECONDS", Side::Right),
        ("USED", Side::Right),
        ("BYTES", Side::Right),
        ("KEY", Side::Left),
    ]);
    for environment in environments {
        let project = projects.iter().find(|project| project.id == environment.project_id);
        let project = project.map_or(environment.project_id.as_str(), |project| project.name.as_str());
        let end_ms = if environment.ended_at_ms == 0 { now_ms } else { environment.ended_at_ms };
        let state = state(environment);
        table.push([
            one_line(project, NAME_CHARS),
            stage(environment).to_owned(),
            if environment.code.is_empty() {
                state.to_owned()
            } else {
                one_line(&environment.code, NAME_CHARS)
            },
            age(environment.started_at_ms),
            (end_ms.saturating_sub(environment.started_at_ms) / 1_000).to_string(),
            age(environment.used_at_ms),
            environment.size_bytes.to_string(),
            environment.key.clone(),
        ]);
    }
    table.text(paint)
}

fn state(environment: &Environment) -> &'static str {
    match environment.state() {
        EnvironmentState::Unspecified => "unknown",
        EnvironmentState::Building => "building",
        EnvironmentState::Ready => "ready",
        EnvironmentState::Failed => "failed",
        EnvironmentState::Removed => "removed",
    }
}

fn stage(environment: &Environment) -> &'static str {
    match environment.stage() {
        EnvironmentStage::Unspecified => "unknown",
        EnvironmentStage::Setup => "setup",
        EnvironmentStage::Install => "install",
    }
}

fn optional(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn to_json(environment: &Environment) -> Value {
    let time = |at_ms: i64| (at_ms != 0).then_some(at_ms);
    json!({
        "type": "environment", "key": environment.key, "project_id": environment.project_id, "stage": stage(environment),
        "state": state(environment),
        "code": optional(&environment.code), "message": optional(&environment.message), "size_bytes": environment.size_bytes,
        "started_at_ms": environment.started_at_ms, "ended_at_ms": time(environment.ended_at_ms), "used_at_ms": time(environment.used_at_ms),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn environments_are_listed_with_their_projects_and_their_logs_are_shown() {
        let (fake, output) = (Fake::default(), Output::kept(false));
        let project = Project { id: "prj_1".to_owned(), name: "shop".to_owned(), ..Project::default() };
        fake.0.lock().unwrap().projects = vec![project];
        fake.run(&output, &["env", "ls", "--project", "shop"]).await.unwrap();
        let text = output.take();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("shop") && lines[1].contains("ready"), "{text}");
        assert!(lines[2].contains("setup_failed"), "{text}");
        fake.run(&output, &["env", "log", "b"]).await.unwrap();
        // Nothing in a log moves the cursor.
        assert_eq!(output.take(), "one\n\u{fffd}[2Jtwo\n");
        assert!(output.take_notes().contains("exit code 3 (setup_failed)"));
        fake.run(&output, &["env", "rm", "a"]).await.unwrap();
        assert_eq!(output.take(), "a is removed\n");
        {
            let mut state = fake.0.lock().unwrap();
            state.events = vec![("session.idle", json!({"outcome": "done"}))];
            state.begins_build = true;
        }
        fake.run(&output, &["env", "build", "--project", "shop"]).await.unwrap();
        // The session of the build goes with it.
        assert!(output.take().contains("one\n"));
        assert!(output.take_notes().contains("setup b: failed"));
        let orders = fake.0.lock().unwrap().orders.clone();
        assert_eq!(orders[..2], ["list environments of \"prj_1\"", "remove environment a"]);
    }
}
