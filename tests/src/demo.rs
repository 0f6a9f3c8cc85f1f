//! `./dev demo env`: a stack of real processes works on three private repositories with real dependencies: a Node and a Python project on the
//! machine's own programs, and a Rust project in an image. People describe their environments, an agent repairs them and tests the repair,
//! and a person pushes it.
// Continues in `demo::project`, which shows one project.

mod outside;
mod project;
mod report;
mod stack;

use anyhow::{Result, bail};
use outside::Outside;
use project::{PROJECTS, show};
use report::ok;
use serde_json::json;
use stack::RunningStack;
use std::{os::unix::fs::PermissionsExt as _, path::Path};

/// Shows all projects. `flotilla` is the program to show.
///
/// # Errors
/// The first thing that is not as it should be.
pub async fn run(flotilla: &Path) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("flotilla-demo-env.").tempdir()?;
    // Postgres and the sandboxes run as other users.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    report::note(&format!("the files of this run are in {}", directory.path().display()));
    let outside = Outside::start(directory.path()).await?;
    let stack = RunningStack::start(flotilla, directory.path(), outside.variables()).await?;
    let shown = tokio::select! {
        shown = show_all(&stack, &outside, directory.path()) => shown,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into).and_then(|()| bail!("interrupted")),
    };
    if shown.is_err() {
        stack.report_logs();
    }
    stack.stop().await?;
    shown?;
    ok("everything holds");
    Ok(())
}

/// Gives the tenant the login of its server of git, and shows each project.
async fn show_all(stack: &RunningStack, outside: &Outside, directory: &Path) -> Result<()> {
    stack.flotilla_with_input(&["secret", "set", outside::SECRET], outside::LOGIN).await?;
    let settings = json!({"environment": {"git": {
        "credentials": {outside::PREFIX: outside::SECRET},
        "push": {outside::PREFIX: {"credential": outside::SECRET}},
    }}});
    let file = directory.join("settings.json");
    std::fs::write(&file, settings.to_string())?;
    stack.flotilla(&["config", "set", stack::text(&file)?]).await?;
    ok("the tenant has a secret for its server of git, and settings that use it to read and to push");
    for project in &PROJECTS {
        match show(stack, outside, project).await {
            Err(error) if project.needs_image() && format!("{error:#}").contains("images_unsupported") => {
                let why = "this machine joins the layers of an image only for root, or with bubblewrap 0.11";
                report::note(&format!("left out: {}: {why}", project.name));
            }
            shown => shown?,
        }
    }
    Ok(())
}
