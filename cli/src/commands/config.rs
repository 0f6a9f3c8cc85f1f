//! `flotilla config`: settings of the tenant and of projects, and the effective settings of a repository or a session, with
//! their origins.

use crate::{
    client::{Client, call},
    commands::project,
    exit::Exit,
    input,
    terminal::{output::Output, paint::harmless},
};
use anyhow::{Context as _, Result};
use domain::{limits, policy::level::Level};
use rpc::v1::{
    ErrorCode, ExplainSettingsRequest, ExplainSettingsResponse, GetSettingsRequest, SetSettingsRequest,
    SettingOrigin,
};
use serde_json::{Value, json};
use settings::{
    document::Document,
    repository::{UnclearRestriction, configure, is_settings, named_files},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tonic::Status;

/// How the gateway names the documents of a tenant and of a project in the places of mistakes.
const STORED_NAMES: [&str; 2] = ["tenant.json:", "project.json:"];

/// An action on settings.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Show every effective value with its file, line and column, for a directory or for a session. Sessions read the
    /// files of the commit that they start from.
    Explain {
        /// The repository.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Show the effective settings of this session, including those of its tenant and its project.
        #[arg(long, value_name = "ID", conflicts_with_all = ["directory", "settings"])]
        session: Option<String>,
        /// The platform's settings file, the same one that the workers use.
        #[arg(long, env = "FLOTILLA_SETTINGS")]
        settings: Option<PathBuf>,
    },
    /// Print the settings of the tenant, or of a project.
    Get {
        /// The project's id or name; without one, the tenant's settings.
        #[arg(long)]
        project: Option<String>,
    },
    /// Replace the settings of the tenant, or of a project, with an opencode.json. An empty file removes them.
    Set {
        /// The file; "-" reads standard input.
        file: PathBuf,
        /// The project's id or name; without one, the tenant's settings.
        #[arg(long)]
        project: Option<String>,
    },
}

impl ConfigArgs {
    /// Whether the action needs a gateway.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.command, ConfigCommand::Explain { session: None, .. })
    }
}

/// Shows the effective settings of a directory.
pub(crate) fn run_here(output: &Output, arguments: &ConfigArgs) -> Result<Exit> {
    let ConfigCommand::Explain { directory, settings, .. } = &arguments.command else {
        return Ok(Exit::Done);
    };
    show(output, &explain(directory, settings.as_deref())?)
}

/// Performs an action that needs a gateway.
pub(crate) async fn run(client: &Client, output: &Output, arguments: ConfigArgs) -> Result<Exit> {
    match arguments.command {
        ConfigCommand::Explain { session, .. } => {
            let request = || ExplainSettingsRequest { session_id: session.clone().unwrap_or_default() };
            let ask = || async { client.settings().explain_settings(request()).await };
            show(output, &call("explain the settings", ask).await?)
        }
        ConfigCommand::Get { project } => {
            let project = project_id(client, project).await?;
            let request = || GetSettingsRequest { project_id: project.clone().unwrap_or_default() };
            let ask = || async { client.settings().get_settings(request()).await };
            let document = call("read the settings", ask).await?.settings.map(|settings| settings.document);
            match &document {
                _ if output.is_json() => {
                    output.json(&json!({"type": "settings", "project_id": project, "document": document}))?;
                }
                Some(document) => output.page(&format!("{}\n", harmless(document).trim_end()))?,
                None => output.note("no settings are stored"),
            }
            Ok(Exit::Done)
        }
        ConfigCommand::Set { file, project } => {
            let document = read(&file)?;
            let project = project_id(client, project).await?;
            let request = || SetSettingsRequest {
                project_id: project.clone().unwrap_or_default(),
                document: document.clone(),
            };
            let ask = || async { client.settings().set_settings(request()).await };
            let stored = call("replace the settings", ask).await.map_err(|error| in_file(error, &file))?;
            let is_there = stored.settings.is_some();
            if output.is_json() {
                let object = json!({"type": "settings_change", "project_id": project, "is_stored": is_there});
                output.json(&object)?;
            } else {
                output.note(if is_there { "the settings are replaced" } else { "the settings are removed" });
            }
            Ok(Exit::Done)
        }
    }
}

/// The id of the project that a person names by its id or its name.
async fn project_id(client: &Client, named: Option<String>) -> Result<Option<String>> {
    match named {
        Some(named) => Ok(Some(project::find(client, &named).await?.id)),
        None => Ok(None),
    }
}

/// Reads a document. /dev/null is the usual empty file.
fn read(file: &Path) -> Result<String> {
    if file == Path::new("/dev/null") {
        return Ok(String::new());
    }
    if file == Path::new("-") {
        let bytes = input::read_from(std::io::stdin().lock(), limits::SETTINGS_FILE_BYTES_MAX);
        return bytes.and_then(input::to_text).context("read standard input");
    }
    input::read_text(file, limits::SETTINGS_FILE_BYTES_MAX)
        .with_context(|| format!("read {}", file.display()))
}

/// Names the person's file instead of the gateway's name of a stored document in the places of mistakes.
fn in_file(error: anyhow::Error, file: &Path) -> anyhow::Error {
    let status = error.downcast_ref::<Status>();
    let refused = status.filter(|status| rpc::status::code(status) == Some(ErrorCode::SettingsInvalid));
    let Some(message) = refused.map(Status::message) else { return error };
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let lines = message.lines().map(|line| {
        let rest = STORED_NAMES.iter().find_map(|stored| line.strip_prefix(*stored));
        rest.map_or_else(|| line.to_owned(), |rest| format!("{name}:{rest}"))
    });
    let message = lines.collect::<Vec<_>>().join("\n");
    anyhow::Error::new(rpc::status::error(ErrorCode::SettingsInvalid, message))
        .context("replace the settings")
}

/// The effective settings of a directory, without tenant and project.
fn explain(directory: &Path, platform: Option<&Path>) -> Result<ExplainSettingsResponse> {
    let mut above = vec![];
    if let Some(file) = platform {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        above.push(Document::json(Level::Platform, &file.display().to_string(), &text)?);
    }
    let files = files(directory)?;
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Ok(match configure(&above, &files) {
        Ok(configure) => configure.into(),
        Err(UnclearRestriction(problems)) => {
            ExplainSettingsResponse { problems, is_refused: true, ..Default::default() }
        }
    })
}

fn show(output: &Output, explained: &ExplainSettingsResponse) -> Result<Exit> {
    if !output.is_json() && lines(explained).is_empty() {
        output.note("no settings exist, so the defaults apply");
    } else if output.is_json() {
        objects(explained).iter().try_for_each(|object| output.json(object))?;
    } else {
        let lines = lines(explained).into_iter().map(|line| harmless(&line) + "\n");
        output.page(&lines.collect::<String>())?;
    }
    Ok(if explained.problems.is_empty() { Exit::Done } else { Exit::Failed })
}

/// One line for each value, then the problems.
fn lines(explained: &ExplainSettingsResponse) -> Vec<String> {
    let ExplainSettingsResponse { settings, ignored, problems, is_refused } = explained;
    if *is_refused {
        return vec![format!("No session starts with these settings:\n{problems}")];
    }
    let place = |origin: &SettingOrigin| match origin.line {
        0 => origin.file.clone(),
        line => format!("{}:{line}:{}", origin.file, origin.column),
    };
    let mut lines: Vec<String> = settings
        .iter()
        .map(|setting| {
            let origin = setting.origin.clone().unwrap_or_default();
            format!("{} = {}  ({}, {})", origin.path, setting.value, origin.level, place(&origin))
        })
        .collect();
    lines.extend(ignored.iter().map(|origin| format!("{} has no effect  ({})", origin.path, place(origin))));
    if !problems.is_empty() {
        lines.push(format!("Left out because of mistakes:\n{problems}"));
    }
    lines
}

/// The same as [`lines`], for programs.
fn objects(explained: &ExplainSettingsResponse) -> Vec<Value> {
    let ExplainSettingsResponse { settings, ignored, problems, is_refused } = explained;
    let known = |number: u32| (number != 0).then_some(number);
    let settings = settings.iter().map(|setting| {
        let origin = setting.origin.clone().unwrap_or_default();
        json!({
            "type": "setting", "path": origin.path, "value": setting.value, "level": origin.level, "file": origin.file,
            "line": known(origin.line), "column": known(origin.column),
        })
    });
    let ignored = ignored.iter().map(|origin| {
        json!({
            "type": "ignored_setting", "path": origin.path, "file": origin.file, "line": known(origin.line),
            "column": known(origin.column),
        })
    });
    let problem = json!({"type": "settings_problem", "message": problems, "is_refused": is_refused});
    let problem = (!problems.is_empty()).then_some(problem);
    settings.chain(ignored).chain(problem).collect()
}

/// The settings files, with their paths in git, and the files that they name.
fn files(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut found = vec![];
    let opencode = directory.join(".opencode");
    let mut waiting = vec![directory.to_owned(), directory.join(".claude"), opencode.clone()];
    while let Some(next) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| format!("read {}", next.display()))?;
            let (path, kind) = (entry.path(), entry.file_type().context("read a file type")?);
            if kind.is_dir() && next.starts_with(&opencode) {
                waiting.push(path);
                continue;
            }
            let Some(name) = path.strip_prefix(directory).ok().and_then(Path::to_str) else { continue };
            if kind.is_file() && is_settings(name) && found.len() <= limits::SETTINGS_FILES_MAX {
                let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                found.push((name.to_owned(), String::from_utf8_lossy(&text).into_owned()));
            }
        }
    }
    let settings: Vec<(&str, &str)> =
        found.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    for name in named_files(&settings) {
        let path = directory.join(&name);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        // One that cannot be read is a mistake of the settings that name it.
        if is_file && let Ok(text) = input::read_text(&path, limits::SETTINGS_FILE_BYTES_MAX) {
            found.push((name, text));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn mistakes_are_in_the_file_of_the_person() {
        let refused = |code, message: &str, file: &str| {
            let status = rpc::status::error(code, message);
            let error = Err::<(), _>(status).context("replace the settings").unwrap_err();
            crate::exit::sentence(&in_file(error, Path::new(file))).unwrap()
        };
        assert_eq!(
            refused(
                ErrorCode::SettingsInvalid,
                "tenant.json:1:25: x\nproject.json:2:1: y\nand 3 more",
                "a/b.json"
            ),
            "replace the settings: a/b.json:1:25: x\na/b.json:2:1: y\nand 3 more (settings_invalid)"
        );
        assert!(
            refused(ErrorCode::SettingsInvalid, "tenant.json:1:1: x", "-")
                .contains(": standard input:1:1: x")
        );
        assert!(refused(ErrorCode::ScopeMissing, "tenant.json: x", "f").contains("tenant.json: x"));
    }

    #[test]
    fn every_value_says_where_it_comes_from() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("opencode.json", "{\n  \"model\": \"a/b\",\n  \"theme\": \"x\"\n}");
        write(".opencode/agent/team/review.md", "---\nmode: subagent\n---\nReview.");
        write("sub/opencode.json", "{");
        write("platform.json", "{\"permission\": {\"webfetch\": \"deny\"}}");
        let explained = explain(directory.path(), Some(&directory.path().join("platform.json"))).unwrap();
        let text = lines(&explained).join("\n");
        for want in [
            "model = \"a/b\"  (repository, opencode.json:2:12)",
            "agent.\"team/review\".mode = \"subagent\"  (repository, .opencode/agent/team/review.md:2:7)",
            "permission.webfetch = \"deny\"  (platform, ",
            "theme has no effect  (opencode.json:3:",
        ] {
            assert!(text.contains(want), "{want:?} in {text}");
        }
        assert_eq!((explained.problems.as_str(), explained.is_refused), ("", false));
        let objects = objects(&explained);
        assert_eq!(objects.len(), lines(&explained).len());
        assert_eq!((&objects[0]["type"], &objects[0]["line"]), (&json!("setting"), &json!(2)));
        // Of an environment that an admin has allowed, the gateway may know the file and not the line.
        let origin = SettingOrigin {
            path: "environment.image".to_owned(),
            level: "environment".to_owned(),
            file: ".flotilla/config.yaml".to_owned(),
            ..SettingOrigin::default()
        };
        let setting = rpc::v1::Setting { origin: Some(origin), value: "\"x\"".to_owned() };
        let allowed = ExplainSettingsResponse { settings: vec![setting], ..Default::default() };
        assert_eq!(lines(&allowed), ["environment.image = \"x\"  (environment, .flotilla/config.yaml)"]);
        assert_eq!(super::objects(&allowed)[0]["line"], Value::Null);
        write("opencode.jsonc", "{\"permission\": 1}");
        let explained = explain(directory.path(), None).unwrap();
        assert!(explained.problems.contains("opencode.jsonc:1:16: permission: expected"), "{explained:?}");
        assert!(explained.is_refused);
    }
}
