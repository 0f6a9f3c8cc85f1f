//! `flotilla-demo FLOTILLA`: shows environments with the given program; see `e2e::demo`.
#![allow(clippy::print_stderr, reason = "a person reads why it failed")]

use anyhow::Context as _;
use std::{path::PathBuf, process::ExitCode};

#[tokio::main]
async fn main() -> ExitCode {
    let shown = async {
        let program = std::env::args_os().nth(1).context("usage: flotilla-demo FLOTILLA")?;
        let program = PathBuf::from(program).canonicalize().context("find the program to show")?;
        e2e::demo::run(&program).await
    };
    match shown.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}
