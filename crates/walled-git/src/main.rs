//! `flotilla-git`: becomes a git that reads foreign objects. It raises its walls first, and git keeps them: one directory to write in, no network,
//! no second process, and limits of memory, time and files. It changes nothing else: the environment, the input and the outputs are the caller's.

mod walls;

use anyhow::Context as _;
use clap::Parser;
use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// Runs git behind walls.
#[derive(Debug, Parser)]
struct Arguments {
    /// The git program.
    #[arg(long)]
    git: PathBuf,
    /// The directory in which it works, and the only one in which it can write.
    #[arg(long)]
    directory: PathBuf,
    /// Bytes of the largest file that it can write.
    #[arg(long)]
    file_bytes_max: u64,
    /// What git is asked to do.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { git, directory, file_bytes_max, arguments } = Arguments::parse();
    std::env::set_current_dir(&directory).context("enter the directory")?;
    let git = git.canonicalize().context("find git")?;
    walls::raise(&directory, &git, file_bytes_max).context("raise the walls")?;
    // It returns only if it fails.
    Err(Command::new(&git).args(arguments).exec()).context("start git")
}
