//! `flotilla env init`: writes the environment of a repository, from the files in its root.

use super::versions::{self, Version, WantedVersion};
use crate::{repository::git::Git, terminal::output::Output};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::proposal;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// The image for repositories that no image of one language serves.
const DEBIAN_IMAGE: &str = "debian:12";
/// The hosts of its packages.
const DEBIAN_HOSTS: &str = "preset:debian";
/// Groups of dependencies with which projects of Python run their tests.
const TEST_GROUPS: [&str; 4] = ["test", "tests", "testing", "dev"];
/// Files with such dependencies beside `requirements.txt`.
const TEST_REQUIREMENTS: [&str; 4] =
    ["requirements-dev.txt", "requirements-test.txt", "requirements-tests.txt", "dev-requirements.txt"];

/// What a kind of project needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    name: String,
    language: String,
    /// One of them in the root of the repository shows it.
    files: Vec<String>,
    /// Whether these files name exact versions. Others count only in a repository without such files of the same language.
    #[serde(default = "has_lock_by_default")]
    has_lock: bool,
    /// `None`: packages of Debian serve it better than an image of its language.
    #[serde(default)]
    image: Option<String>,
    install: String,
    env: BTreeMap<String, String>,
    hosts: Vec<String>,
}

/// A language, and what Debian 12 has of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Language {
    name: String,
    /// For people.
    shown: String,
    /// The version to have if the repository wants none.
    newest: String,
    /// Parts of a version that name an image.
    parts: u8,
    /// The version of its packages.
    debian: String,
    packages: Vec<String>,
}

/// What a repository needs for one of its stacks.
struct Need {
    stack: &'static Stack,
    language: &'static Language,
    wanted: Option<WantedVersion>,
}

fn has_lock_by_default() -> bool {
    true
}

// A test reads both.
static STACKS: LazyLock<Vec<Stack>> =
    LazyLock::new(|| serde_json::from_str(include_str!("stacks.json")).unwrap_or_default());
static LANGUAGES: LazyLock<Vec<Language>> =
    LazyLock::new(|| serde_json::from_str(include_str!("languages.json")).unwrap_or_default());

/// `flotilla env init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The repository; default: the current directory.
    #[arg(long, value_name = "PATH", default_value = ".")]
    repo: PathBuf,
    /// The kind of project, in place of those that its files show: npm, pnpm, yarn, package-json, uv, poetry, pip, pyproject, cargo, cargo-toml, go, maven,
    /// autotools, cmake, make. May be repeated.
    #[arg(long, value_name = "NAME")]
    stack: Vec<String>,
}

pub(super) fn run(output: &Output, arguments: &InitArgs) -> Result<()> {
    let root = Git::at(&arguments.repo).root()?;
    let root = root.as_path();
    if let Some(file) = proposal::FILES.iter().find(|file| root.join(file).exists()) {
        bail!("the repository has {file} already; `flotilla env check` tries it");
    }
    let needs: Vec<Need> = choose(root, &arguments.stack)?
        .into_iter()
        .filter_map(|stack| {
            let language = LANGUAGES.iter().find(|language| language.name == stack.language)?;
            Some(Need { stack, language, wanted: versions::find(root, &stack.language) })
        })
        .collect();
    let path = root.join(proposal::FILE);
    path.parent().map_or(Ok(()), fs::create_dir_all).context("make the directory .flotilla")?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    file.write_all(text(root, &needs).as_bytes()).with_context(|| format!("write {}", path.display()))?;
    let names = needs.iter().map(|need| need.stack.name.as_str()).collect::<Vec<_>>().join(", ");
    output.result(
        &path.display().to_string(),
        &json!({"type": "environment_file", "path": path, "stack": names}),
    )?;
    output.note(&format!(
        "written for {names}; look at it, commit it, and try it with `flotilla env check -- COMMAND`"
    ));
    Ok(())
}

/// The stacks of a repository: at most one of each language, because two lock files of one language are no reason to guess.
fn choose(root: &Path, named: &[String]) -> Result<Vec<&'static Stack>> {
    let names = || STACKS.iter().map(|stack| stack.name.as_str()).collect::<Vec<_>>().join(", ");
    if !named.is_empty() {
        let find = |name: &String| {
            let found = STACKS.iter().find(|stack| stack.name == *name);
            found.with_context(|| format!("there is no stack {name}; there are {}", names()))
        };
        return named.iter().map(find).collect();
    }
    let is_poetry = versions::toml(root, "pyproject.toml")
        .is_some_and(|project| project.pointer("/tool/poetry").is_some() && project.get("project").is_none());
    let shown = |stack: &Stack| match stack.name.as_str() {
        "poetry" if is_poetry => Some("pyproject.toml".to_owned()),
        "pyproject" if is_poetry => None,
        _ => stack.files.iter().find(|file| root.join(file).is_file()).cloned(),
    };
    let mut found: Vec<_> = STACKS.iter().filter_map(|stack| Some((stack, shown(stack)?))).collect();
    let locked: BTreeSet<&str> =
        found.iter().filter(|(stack, _)| stack.has_lock).map(|(stack, _)| stack.language.as_str()).collect();
    found.retain(|(stack, _)| stack.has_lock || !locked.contains(stack.language.as_str()));
    // A makefile beside the files of another language only calls the tools of that language. People build C by the first of these files.
    let has_other = found.iter().any(|(stack, _)| stack.language != "c");
    let mut has_c = has_other;
    found.retain(|(stack, _)| stack.language != "c" || !std::mem::replace(&mut has_c, true));
    let is_twice = |(stack, _): &&(&Stack, String)| {
        found.iter().filter(|(other, _)| other.language == stack.language).count() > 1
    };
    let twice: Vec<_> = found.iter().filter(is_twice).collect();
    if !twice.is_empty() {
        let shown: Vec<_> = twice.iter().map(|(stack, file)| format!("{} ({file})", stack.name)).collect();
        bail!("the repository has {}; choose one with --stack", shown.join(", "))
    }
    if found.is_empty() {
        bail!(
            "no file in the root of {} shows what it needs; name the nearest of these with --stack, and change what it writes: {}",
            root.display(),
            names()
        );
    }
    Ok(found.into_iter().map(|(stack, _)| stack).collect())
}

impl Need {
    /// The version that an image should have.
    fn version(&self) -> String {
        let newest = Version::parse(&self.language.newest).unwrap_or(Version { major: 1, minor: u32::MAX });
        let version = self.wanted.as_ref().map_or(newest, |wanted| wanted.choose(newest));
        version.shown(self.language.parts)
    }

    /// What the packages of Debian lack.
    fn debian_lack(&self) -> Option<String> {
        let wanted = self.wanted.as_ref()?;
        let own = Version::parse(&self.language.debian)?;
        let Language { shown, debian, .. } = self.language;
        (!wanted.takes(own))
            .then(|| format!("Debian 12 has {shown} {debian}, and {} wants {}", wanted.file, wanted.text))
    }

    /// The install with what the files of the repository add to it.
    fn install(&self, root: &Path) -> String {
        let install = self.stack.install.replace("{requirements}", &requirements(root));
        let mut install = install.replace("{project}", &project(root));
        if self.stack.name == "poetry" && !root.join("poetry.lock").is_file() {
            install += "\nrm -f poetry.lock";
        }
        install
    }
}

/// The files of requirements, those of the tests too.
fn requirements(root: &Path) -> String {
    let tests = TEST_REQUIREMENTS.iter().copied().filter(|file| root.join(file).is_file());
    let files = ["requirements.txt"].into_iter().chain(tests);
    files.map(|file| format!("-r {file}")).collect::<Vec<_>>().join(" ")
}

/// What pip installs of a project: with the dependencies of its tests, in the first extra or group of the usual names.
fn project(root: &Path) -> String {
    let project = versions::toml(root, "pyproject.toml").unwrap_or_default();
    let first = |table: &str| {
        let table = project.pointer(table)?.as_object()?;
        TEST_GROUPS.iter().find(|name| table.contains_key(**name))
    };
    let extra = first("/project/optional-dependencies").map(|name| format!("[{name}]")).unwrap_or_default();
    match first("/dependency-groups") {
        // Older versions of pip know no groups.
        Some(group) => format!(
            "--upgrade 'pip>=25.1'\n.venv/bin/pip install --no-cache-dir -e '.{extra}' --group {group}"
        ),
        None if extra.is_empty() => "-e .".to_owned(),
        None => format!("-e '.{extra}'"),
    }
}

/// The file. Without an image for all of it, Debian and a setup with its packages take the place; otherwise a comment shows them.
fn text(root: &Path, needs: &[Need]) -> String {
    let image = match needs {
        [need] => need.stack.image.as_ref().map(|image| image.replace("{version}", &need.version())),
        _ => None,
    };
    let needs_debian = image.is_none();
    let mut lines = vec![
        "# The environment of this repository for Flotilla. An admin allows it before sessions use it."
            .to_owned(),
    ];
    let wants = needs.iter().filter_map(|need| need.wanted.as_ref());
    lines.extend(wants.map(|wanted| format!("# {} wants {}.", wanted.file, wanted.text)));
    if let Some(channel) = versions::find_channel(root) {
        lines.push(format!(
            "# rust-toolchain wants {channel}, which no image has: docs/environment-recipes.md shows rustup."
        ));
    }
    lines.push("environment:".to_owned());
    lines.push(format!("  image: {}", image.as_deref().unwrap_or(DEBIAN_IMAGE)));
    if needs_debian {
        lines.extend(lacks(needs).map(|lack| format!("  # {lack}.")));
        lines.extend(setup(needs, "  "));
    } else {
        lines.extend(alternative(needs));
    }
    let install: Vec<String> =
        needs.iter().map(|need| need.install(root)).filter(|install| !install.is_empty()).collect();
    if !install.is_empty() {
        lines.push("  install: |".to_owned());
        lines.extend(install.iter().flat_map(|install| install.lines()).map(|line| format!("    {line}")));
    }
    let env: BTreeMap<&String, &String> = needs.iter().flat_map(|need| &need.stack.env).collect();
    if !env.is_empty() {
        lines.push("  env:".to_owned());
        lines.extend(env.iter().map(|(name, value)| format!("    {name}: {}", Value::from(value.as_str()))));
    }
    let hosts: BTreeSet<&str> = needs.iter().flat_map(|need| &need.stack.hosts).map(String::as_str).collect();
    let list = |hosts: &BTreeSet<&str>| {
        hosts.iter().map(|host| Value::from(*host).to_string()).collect::<Vec<_>>().join(", ")
    };
    let of_scripts = hosts.iter().copied().chain(needs_debian.then_some(DEBIAN_HOSTS)).collect();
    lines.extend([
        "  network:".to_owned(),
        "    # What setup and install reach.".to_owned(),
        format!("    setup: [{}]", list(&of_scripts)),
        "    # What commands of sessions reach.".to_owned(),
        format!("    allow: [{}]", list(&hosts)),
    ]);
    lines.join("\n") + "\n"
}

fn lacks<'a>(needs: &'a [Need]) -> impl Iterator<Item = String> + 'a {
    needs.iter().filter_map(Need::debian_lack)
}

/// The setup that installs the packages of Debian.
fn setup(needs: &[Need], indent: &str) -> [String; 3] {
    let packages: BTreeSet<&str> =
        needs.iter().flat_map(|need| &need.language.packages).map(String::as_str).collect();
    let packages = packages.into_iter().collect::<Vec<_>>().join(" ");
    [
        format!("{indent}setup: |"),
        format!("{indent}  apt-get update"),
        format!("{indent}  apt-get install -y --no-install-recommends ca-certificates git {packages}"),
    ]
}

/// What else runs the install, as comments: an image from another place, and none.
fn alternative(needs: &[Need]) -> Vec<String> {
    let mut lines = vec![
        "  # Where sessions get no image of Docker Hub: without `image`, they run the programs of the sandbox machine. Or name an image of Debian that you have, let".to_owned(),
        format!("  # a setup install its packages, and add {DEBIAN_HOSTS} to network.setup:"),
        "  #   image: registry.example.com/debian:12".to_owned(),
    ];
    lines.extend(setup(needs, "  #   "));
    lines.extend(lacks(needs).map(|lack| format!("  # ({lack}.)")));
    lines
}

#[cfg(test)]
mod tests;
