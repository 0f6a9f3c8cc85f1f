//! The file in which `flotilla up` tells other commands its address, and how they find the file.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

/// The data directory's usual name.
pub(crate) const DATA_DIR: &str = ".flotilla";
/// The file in it.
pub(crate) const READY_FILE: &str = "ready.json";

/// `ready.json`, mode 0600; also the last line that `flotilla up` prints, there without the operator's key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stack {
    pub gateway_url: String,
    /// Health and metrics by role.
    pub admin_urls: BTreeMap<String, String>,
    pub tenant: String,
    pub tenant_id: String,
    pub api_key: String,
    /// For `flotilla admin`. Absent in the printed line, which ends up in logs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator_key: String,
    /// Process ids by role; "up" is the launcher.
    pub pids: BTreeMap<String, u32>,
    /// The model for prompts that name none: `provider/model`.
    pub model: String,
}

/// Finds the nearest running stack: in `named` if given, else in `.flotilla` here or in a directory above, else in the home
/// directory.
pub(crate) fn find(named: Option<&Path>) -> Result<Option<Stack>> {
    let here = env::current_dir().context("read the current directory")?;
    let home = env::var_os("HOME").map(PathBuf::from);
    for dir in candidates(named, &here, home.as_deref()) {
        let file = dir.join(READY_FILE);
        match fs::read(&file) {
            Ok(json) => {
                let stack: Stack =
                    serde_json::from_slice(&json).with_context(|| format!("read {}", file.display()))?;
                // A launcher that was killed leaves its file behind.
                let lives =
                    stack.pids.get("up").is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists());
                if lives {
                    return Ok(Some(stack));
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        }
    }
    Ok(None)
}

fn candidates(named: Option<&Path>, here: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    if let Some(dir) = named {
        return vec![dir.to_owned()];
    }
    here.ancestors().chain(home).map(|dir| dir.join(DATA_DIR)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_stack_wins() {
        let path = Path::new;
        assert_eq!(
            candidates(None, path("/a/b"), Some(path("/home/u"))),
            [path("/a/b/.flotilla"), path("/a/.flotilla"), path("/.flotilla"), path("/home/u/.flotilla")]
        );
        assert_eq!(candidates(Some(path("/d")), path("/a/b"), None), [path("/d")]);
    }
}
