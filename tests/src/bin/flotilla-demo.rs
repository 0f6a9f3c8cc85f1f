//! `flotilla-demo env|github|toolchains FLOTILLA [NAME…]`: shows what `e2e::demo` has under this name, with the given program.
#![allow(clippy::print_stderr, reason = "a person reads why it failed")]

use anyhow::{Context as _, Result, bail};
use e2e::demo::{environments, github, toolchains};
use std::{path::PathBuf, process::ExitCode};

#[tokio::main]
async fn main() -> ExitCode {
    match show().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Shows what the arguments name.
async fn show() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (demo, program) = arguments
        .next()
        .zip(arguments.next())
        .context("usage: flotilla-demo env|github|toolchains FLOTILLA")?;
    let program = PathBuf::from(program).canonicalize().context("find the program to show")?;
    match demo.to_str() {
        Some("env") => environments::run(&program).await,
        Some("github") => github::run(&program).await,
        Some("toolchains") => {
            let names: Vec<String> = arguments.map(|name| name.to_string_lossy().into_owned()).collect();
            toolchains::run(&program, &names).await
        }
        _ => bail!("there is no demo {}", demo.display()),
    }
}
