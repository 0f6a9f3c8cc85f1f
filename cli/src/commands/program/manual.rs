//! `flotilla man`: the manual pages of all commands.

use crate::{exit::Exit, terminal::output::Output};
use anyhow::{Context as _, Result};
use clap::Command;
use std::{fs, path::Path};

/// Writes a page for each command.
pub(crate) fn write(output: &Output, command: Command, directory: &Path) -> Result<Exit> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("write the manual pages into {}", directory.display()))?;
    output.note(&format!("the manual pages are in {}", directory.display()));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write(&Output::kept(false), crate::arguments::for_manual(), directory.path()).unwrap();
        for page in ["flotilla.1", "flotilla-run.1", "flotilla-env-check.1", "flotilla-gateway.1"] {
            let text = fs::read_to_string(directory.path().join(page)).unwrap();
            assert!(text.contains("NAME") && text.len() > 500, "{page}");
        }
    }
}
