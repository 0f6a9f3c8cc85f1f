//! One project: from a private repository with a failing test to a branch with the repair.

use super::{
    outside::{GIT_HOST, Outside, PREFIX},
    report::ok,
    stack::{RunningStack, text},
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::time::Duration;
use testkit::git::{self, Repository};
use tokio::time::{Instant, sleep};

/// Longest wait for a row of the log of the network, and the pause between two looks at it.
const LOG_WAIT: Duration = Duration::from_secs(30);
const LOG_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Project {
    pub(super) name: &'static str,
    /// The files of its repository.
    files: &'static [(&'static str, &'static str)],
    runs_in: Root,
    /// The command that runs its tests.
    test: &'static str,
    /// What the tests print while one of them fails.
    failed: &'static str,
    /// What the tests print when all of them pass.
    passed: &'static str,
    repair: Repair,
}

impl Project {
    /// Whether its sessions run in an image.
    pub(super) fn needs_image(&self) -> bool {
        self.runs_in == Root::RustImage
    }
}

/// The programs that the sessions of a project have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// Those of this machine's `/usr`.
    Machine,
    /// Those of the image with a Rust toolchain.
    RustImage,
}

/// The change that makes the tests pass.
#[derive(Debug)]
struct Repair {
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

/// A file below `tests/demo`.
macro_rules! file {
    ($project:literal, $path:literal) => {
        ($path, include_str!(concat!("../../demo/", $project, "/", $path)))
    };
}

pub(super) const PROJECTS: [Project; 3] = [
    Project {
        name: "node",
        files: &[
            file!("node", "package.json"),
            file!("node", "package-lock.json"),
            file!("node", "release.js"),
            file!("node", "release.test.js"),
            (".gitignore", "node_modules/\n"),
        ],
        runs_in: Root::Machine,
        test: "npm test",
        failed: "# fail 1",
        passed: "# fail 0",
        repair: Repair {
            file: "release.js",
            old: "releases.toSorted().at(-1)",
            new: "semver.rsort([...releases])[0]",
        },
    },
    Project {
        name: "python",
        files: &[
            file!("python", "requirements.txt"),
            file!("python", "calendar_days.py"),
            file!("python", "test_calendar_days.py"),
            (".gitignore", ".venv/\n__pycache__/\n.pytest_cache/\n"),
        ],
        runs_in: Root::Machine,
        test: ".venv/bin/python -m pytest",
        failed: "1 failed",
        passed: "1 passed",
        repair: Repair {
            file: "calendar_days.py",
            old: "dtstart=start, until=end)]",
            new: "dtstart=start, until=end, byweekday=range(6))]",
        },
    },
    Project {
        name: "rust",
        files: &[
            file!("rust", "Cargo.toml"),
            file!("rust", "Cargo.lock"),
            file!("rust", "src/lib.rs"),
            (".gitignore", "target/\n.cache/\n"),
        ],
        runs_in: Root::RustImage,
        test: "cargo test --offline",
        failed: "test result: FAILED. 0 passed; 1 failed",
        passed: "test result: ok. 1 passed",
        repair: Repair {
            file: "src/lib.rs",
            old: "items.filter_map(|item| item[\"cents\"].as_u64()).sum()",
            new: "items.filter_map(|item| Some(item[\"cents\"].as_u64()? * item[\"count\"].as_u64()?)).sum()",
        },
    },
];

/// Shows a project, as a person would work on it.
pub(super) async fn show(stack: &RunningStack, outside: &Outside, project: &Project) -> Result<()> {
    let name = project.name;
    let repository = git::repository(project.files);
    let url = format!("{PREFIX}{name}.git");
    repository.git(&["remote", "add", "origin", &url]);
    describe(stack, outside, project, &repository).await?;
    outside.publish(name, &repository);
    stack.flotilla(&["project", "create", name, "--repo", &url]).await?;
    check(stack, project, &repository).await?;
    let session = repair(stack, project).await?;
    stack.flotilla(&["push", &session]).await?;
    let pushed = outside.read(name, &format!("agent/{session}"), project.repair.file)?;
    ensure!(pushed.contains(project.repair.new), "the branch lacks the repair: {pushed}");
    ok(&format!("{name}: the private repository has a branch with the repair"));
    await_clone_in_log(stack, &session).await?;
    stack.flotilla(&["delete", &session]).await?;
    Ok(())
}

/// Waits for the row of the clone in the session's log of the network, which comes some seconds later.
async fn await_clone_in_log(stack: &RunningStack, session: &str) -> Result<()> {
    let until = Instant::now() + LOG_WAIT;
    loop {
        let log = stack.objects(&["egress", "log", session, "--json"]).await?;
        if log.iter().any(|row| row.to_string().contains(GIT_HOST)) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "no row tells of the clone: {log:?}");
        sleep(LOG_PAUSE).await;
    }
}

/// Writes the environment of the repository from its lock file, and commits it.
async fn describe(
    stack: &RunningStack,
    outside: &Outside,
    project: &Project,
    repository: &Repository,
) -> Result<()> {
    let path = repository.path();
    stack.flotilla(&["env", "init", "--repo", text(&path)?]).await?;
    let file = path.join(".flotilla/config.yaml");
    let written = std::fs::read_to_string(&file)?;
    let lines = written.lines().filter_map(|line| match project.runs_in {
        _ if !line.trim_start().starts_with("image:") => Some(line.to_owned()),
        Root::Machine => None,
        Root::RustImage => Some(format!("  image: {}", outside.rust_image.reference)),
    });
    let chosen: Vec<String> = lines.collect();
    std::fs::write(&file, chosen.join("\n") + "\n")?;
    repository.git(&["add", "--all"]);
    repository.git(&["commit", "--quiet", "--message=Describe the environment"]);
    ok(&format!(
        "{}: `flotilla env init` described the environment, and the person chose its programs",
        project.name
    ));
    Ok(())
}

/// Builds the environment, and sees the test fail in it.
async fn check(stack: &RunningStack, project: &Project, repository: &Repository) -> Result<()> {
    let name = project.name;
    let path = repository.path();
    let refused = stack.flotilla(&["env", "check", "--repo", text(&path)?, "--", "true"]).await;
    let refused = refused.err().context("an environment that nobody has allowed is used")?.to_string();
    ensure!(refused.contains("flotilla env allow"), "{refused}");
    ok(&format!("{name}: sessions do not use the environment before an admin has allowed it"));
    let arguments = ["env", "check", "--repo", text(&path)?, "--allow", "--", project.test];
    let failed =
        stack.flotilla(&arguments).await.err().context("the test passes before the repair")?.to_string();
    ensure!(failed.contains(project.failed), "{failed}");
    ok(&format!("{name}: the environment is built, and the test fails in it"));
    Ok(())
}

/// Has the agent repair the project, and returns its session.
async fn repair(stack: &RunningStack, project: &Project) -> Result<String> {
    let Project { name, test, repair, .. } = project;
    let run = json!({"command": test, "timeout": 300_000});
    let edit = json!({
        "filePath": format!("/workspace/{}", repair.file), "oldString": repair.old, "newString": repair.new,
    });
    let prompt = format!(
        "Fix the failing test.\n@tool bash {run}\n@text The test shows the mistake.\n@tool edit {edit}\n@tool bash {run}\n@text The test passes."
    );
    stack.flotilla(&["run", "--project", name, &prompt]).await?;
    let session = stack.newest_session().await?;
    let outputs = stack.bash_outputs(&session).await?;
    let [before, after] = &outputs[..] else { bail!("the test should run twice: {outputs:?}") };
    ensure!(before.contains(project.failed), "before the repair: {before}");
    ensure!(after.contains(project.passed), "after the repair: {after}");
    ok(&format!("{name}: the agent repaired it, and its test passes in the session"));
    Ok(session)
}
