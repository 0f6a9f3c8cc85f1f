//! `flotilla env init`: writes the environment of a repository, from the lock files in it.

use crate::{repository::git::Git, terminal::output::Output};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::proposal;
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// What a kind of project needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    name: String,
    /// One of them in the root of the repository shows it.
    files: Vec<String>,
    /// Whether these files name exact versions. Others count only in a repository without such files.
    #[serde(default = "has_lock_by_default")]
    has_lock: bool,
    image: String,
    install: String,
    env: BTreeMap<String, String>,
    hosts: Vec<String>,
}

fn has_lock_by_default() -> bool {
    true
}

static STACKS: LazyLock<Vec<Stack>> = LazyLock::new(|| {
    // A test reads it.
    serde_json::from_str(include_str!("stacks.json")).unwrap_or_default()
});

/// `flotilla env init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The repository; default: the current directory.
    #[arg(long, value_name = "PATH", default_value = ".")]
    repo: PathBuf,
    /// The kind of project, where the repository has several: npm, pnpm, yarn, pip, pyproject, uv, cargo, go, maven.
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
}

pub(super) fn run(output: &Output, arguments: &InitArgs) -> Result<()> {
    let root = Git::at(&arguments.repo).root()?;
    let root = root.as_path();
    if let Some(file) = proposal::FILES.iter().find(|file| root.join(file).exists()) {
        bail!("the repository has {file} already; `flotilla env check` tries it");
    }
    let stack = choose(root, arguments.stack.as_deref())?;
    let path = root.join(proposal::FILE);
    path.parent().map_or(Ok(()), fs::create_dir_all).context("make the directory .flotilla")?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    file.write_all(text(stack).as_bytes()).with_context(|| format!("write {}", path.display()))?;
    let object = json!({"type": "environment_file", "path": path, "stack": stack.name});
    output.result(&path.display().to_string(), &object)?;
    output.note(&format!(
        "written for {}; look at it, commit it, and try it with `flotilla env check -- COMMAND`",
        stack.name
    ));
    Ok(())
}

/// The stack of a repository. Several are no reason to guess.
fn choose(root: &Path, named: Option<&str>) -> Result<&'static Stack> {
    let names = || STACKS.iter().map(|stack| stack.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(named) = named {
        let found = STACKS.iter().find(|stack| stack.name == named);
        return found.with_context(|| format!("there is no stack {named}; there are {}", names()));
    }
    let shown = |stack: &Stack| stack.files.iter().find(|file| root.join(file).is_file()).cloned();
    let mut found: Vec<_> = STACKS.iter().filter_map(|stack| Some((stack, shown(stack)?))).collect();
    if found.iter().any(|(stack, _)| stack.has_lock) {
        found.retain(|(stack, _)| stack.has_lock);
    }
    match found.as_slice() {
        [] => bail!(
            "no file in the root of {} shows what it needs; name the nearest of these with --stack, and change what it writes: {}",
            root.display(),
            names()
        ),
        [(stack, _)] => Ok(*stack),
        several => {
            let shown = |(stack, file): &(&Stack, String)| format!("{} ({file})", stack.name);
            let shown: Vec<_> = several.iter().map(shown).collect();
            bail!(
                "the repository has {}; choose one with --stack, and add the others to the file by hand: an image must have the tools of all of them",
                shown.join(", ")
            )
        }
    }
}

fn text(stack: &Stack) -> String {
    let mut lines = vec![
        "# The environment of this repository for Flotilla. An admin allows it before sessions use it."
            .to_owned(),
        "environment:".to_owned(),
        format!("  image: {}", stack.image),
        "  install: |".to_owned(),
    ];
    lines.extend(stack.install.lines().map(|line| format!("    {line}")));
    if !stack.env.is_empty() {
        lines.push("  env:".to_owned());
        lines.extend(
            stack.env.iter().map(|(name, value)| format!("    {name}: {}", Value::from(value.as_str()))),
        );
    }
    let hosts =
        stack.hosts.iter().map(|host| Value::from(host.as_str()).to_string()).collect::<Vec<_>>().join(", ");
    lines.extend([
        "  network:".to_owned(),
        "    # What install reaches.".to_owned(),
        format!("    setup: [{hosts}]"),
        "    # What commands of sessions reach.".to_owned(),
        format!("    allow: [{hosts}]"),
    ]);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
    use super::*;

    #[test]
    fn every_stack_makes_a_file_that_proposes_an_environment() {
        assert_eq!(STACKS.len(), 9);
        for stack in STACKS.iter() {
            let text = text(stack);
            let proposal = proposal::find(&[(proposal::FILE, &text)]).unwrap().unwrap();
            let document: Value = serde_json::from_str(&proposal.document).unwrap();
            let environment = &document["environment"];
            assert_eq!(environment["image"], stack.image.as_str());
            assert_eq!(environment["install"].as_str().unwrap().trim_end(), stack.install);
            assert_eq!(environment["network"]["setup"], json!(stack.hosts));
        }
    }

    #[test]
    fn several_stacks_are_named_and_not_guessed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        Git::at(root).run(&["init", "--quiet"]).unwrap();
        fs::write(root.join("package-lock.json"), "{}").unwrap();
        let run = |stack: Option<&str>| {
            let arguments = InitArgs { repo: root.to_owned(), stack: stack.map(str::to_owned) };
            let output = Output::kept(false);
            run(&output, &arguments).map(|()| output.take())
        };
        fs::write(root.join("Cargo.lock"), "").unwrap();
        let several = run(None).unwrap_err().to_string();
        assert!(several.contains("npm (package-lock.json), cargo (Cargo.lock)"), "{several}");
        assert!(run(Some("make")).unwrap_err().to_string().contains("there is no stack make"));
        fs::remove_file(root.join("package-lock.json")).unwrap();
        // It names no versions, so the lock file of another tool counts.
        fs::write(root.join("pyproject.toml"), "").unwrap();
        assert!(run(None).unwrap().contains(".flotilla/config.yaml"));
        assert!(fs::read_to_string(root.join(proposal::FILE)).unwrap().contains("image: rust:1"));
        let again = run(Some("npm")).unwrap_err().to_string();
        assert!(again.contains("has .flotilla/config.yaml already"), "{again}");
        for file in [proposal::FILE, "Cargo.lock"] {
            fs::remove_file(root.join(file)).unwrap();
        }
        run(None).unwrap();
        assert!(
            fs::read_to_string(root.join(proposal::FILE))
                .unwrap()
                .contains("pip install --no-cache-dir -e .")
        );
    }
}
