//! `./dev demo env`: a stack of real processes works on three private repositories with real dependencies: a Node and a Python project on the
//! machine's own programs, and a Rust project in an image. People describe their environments, an agent repairs them and tests the repair,
//! and a person pushes it.
// Continues in `demo::project`, which shows one project.

use super::{
    outside::{self, Outside},
    project::{PROJECTS, show},
    report,
    stack::{self, RunningStack},
};
use anyhow::Result;
use serde_json::json;
use std::path::Path;

/// Shows all projects. `flotilla` is the program to show.
///
/// # Errors
/// The first thing that is not as it should be.
pub async fn run(flotilla: &Path) -> Result<()> {
    let directory = stack::directory("flotilla-demo-env.")?;
    let outside = Outside::start(directory.path()).await?;
    let stack = RunningStack::start(flotilla, directory.path(), outside.variables()).await?;
    let shown = stack::until_interrupted(show_all(&stack, &outside, directory.path())).await;
    stack.stop_after(shown).await?;
    report::ok("everything holds");
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
    report::ok("the tenant has a secret for its server of git, and settings that use it to read and to push");
    for project in &PROJECTS {
        match show(stack, outside, project).await {
            Err(error) if project.needs_image() && stack::is_without_images(&error) => {
                report::left_out(project.name, stack::WITHOUT_IMAGES);
            }
            shown => shown?,
        }
    }
    Ok(())
}
