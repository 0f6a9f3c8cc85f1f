//! `flotilla config explain`: every setting of a repository that has an effect, and where it was said.

use crate::{exit::Exit, out};
use anyhow::{Context as _, Result};
use domain::{
    limits,
    settings::{
        Level,
        document::Document,
        repository::{Configured, Unsafe, configured, is_settings},
    },
};
use std::{fs, path::Path, path::PathBuf};

/// What to show of settings.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Show every value with its file, line and column. Sessions read the files of the commit that they start from.
    Explain {
        /// The repository.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// The platform's settings, as the workers have them.
        #[arg(long, env = "FLOTILLA_SETTINGS")]
        settings: Option<PathBuf>,
    },
}

pub(crate) fn run(arguments: &ConfigArgs) -> Result<Exit> {
    let ConfigCommand::Explain { directory, settings } = &arguments.command;
    let (lines, exit) = explain(directory, settings.as_deref())?;
    for line in lines {
        out::line(&line)?;
    }
    Ok(exit)
}

/// One line for each value, then what is wrong.
fn explain(directory: &Path, platform: Option<&Path>) -> Result<(Vec<String>, Exit)> {
    let mut above = vec![];
    if let Some(file) = platform {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        above.push(Document::json(Level::Platform, &file.display().to_string(), &text)?);
    }
    let files = files(directory)?;
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let Configured { merged, problems } = match configured(&above, &files) {
        Ok(configured) => configured,
        Err(Unsafe(problems)) => {
            let text = format!("No session starts with these settings:\n{problems}");
            return Ok((vec![text], Exit::Failed));
        }
    };
    let mut lines: Vec<String> = merged
        .explain()
        .into_iter()
        .map(|row| format!("{} = {}  ({}, {})", row.path, row.value, row.origin.level.as_str(), row.origin))
        .collect();
    lines.extend(
        merged.ignored.iter().map(|ignored| format!("{} has no effect  ({})", ignored.path, ignored.origin)),
    );
    let is_wrong = problems.is_some();
    lines.extend(problems.map(|problems| format!("These files have no say but in permissions:\n{problems}")));
    Ok((lines, if is_wrong { Exit::Failed } else { Exit::Done }))
}

/// The files of settings, with paths as git has them.
fn files(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut found = vec![];
    let mut waiting = vec![directory.to_owned(), directory.join(".opencode")];
    while let Some(next) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| format!("read {}", next.display()))?;
            let (path, kind) = (entry.path(), entry.file_type().context("read a kind of file")?);
            if kind.is_dir() && next != directory {
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
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

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
        let (lines, exit) = explain(directory.path(), Some(&directory.path().join("platform.json"))).unwrap();
        let text = lines.join("\n");
        for want in [
            "model = \"a/b\"  (repository, opencode.json:2:12)",
            "agent.\"team/review\".mode = \"subagent\"  (repository, .opencode/agent/team/review.md:2:7)",
            "permission.webfetch = \"deny\"  (platform, ",
            "theme has no effect  (opencode.json:3:",
        ] {
            assert!(text.contains(want), "{want:?} in {text}");
        }
        assert_eq!(exit, Exit::Done);
        write("opencode.jsonc", "{\"permission\": 1}");
        let (lines, exit) = explain(directory.path(), None).unwrap();
        assert!(lines[0].contains("opencode.jsonc:1:16: permission: expected"), "{lines:?}");
        assert_eq!(exit, Exit::Failed);
    }
}
