//! Programs that are installed together with the running one.

use anyhow::Context as _;
use std::path::PathBuf;

/// Directories above the program's file that are searched. Tests run from `target/debug/deps`, the program itself from
/// `target/debug`.
const LEVELS: usize = 3;

/// Finds the program `name` next to the running one, or in a directory above.
///
/// # Errors
/// A sentence with the remedy, if it is not there.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?;
    let mut files = program.ancestors().skip(1).take(LEVELS).map(|directory| directory.join(name));
    files.find(|file| file.is_file()).with_context(|| {
        format!(
            "{name} is not next to {}: build it (`cargo build --workspace`) or install it there",
            program.display()
        )
    })
}
