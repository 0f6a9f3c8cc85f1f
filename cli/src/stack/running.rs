//! The file in which `flotilla up` tells other commands its address, and how they find the file.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, io, path::Path};

/// The data directory's usual name.
pub(crate) const DATA_DIR: &str = ".flotilla";
pub(crate) const READY_FILE: &str = "ready.json";

/// The lock of the directory, which `flotilla up` holds, with its process id.
pub(crate) const LOCK_FILE: &str = "up.lock";

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

impl Stack {
    /// The line that `flotilla up` prints; without the operator's key, because lines end up in logs.
    ///
    /// # Errors
    /// None in practice: every field has a form in JSON.
    pub(crate) fn to_json(&self) -> Result<Value> {
        let stack = Self { operator_key: String::new(), ..self.clone() };
        let mut object = json!({"type": "stack"});
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, serde_json::to_value(stack)?) {
            object.extend(fields);
        }
        Ok(object)
    }
}

/// Returns the stack that runs in a data directory.
pub(crate) fn read(data: &Path) -> Result<Option<Stack>> {
    let file = data.join(READY_FILE);
    let json = match fs::read(&file) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other.with_context(|| format!("read {}", file.display()))?,
    };
    let stack: Stack = serde_json::from_slice(&json).with_context(|| format!("read {}", file.display()))?;
    // A launcher that was killed leaves its file behind.
    let lives = stack.pids.get("up").is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists());
    Ok(lives.then_some(stack))
}

/// Returns the nearest running stack: that in `.flotilla` of a directory or of one above it.
pub(crate) fn find_above(directory: &Path) -> Result<Option<Stack>> {
    let stacks = directory.ancestors().map(|dir| read(&dir.join(DATA_DIR)));
    stacks.filter_map(Result::transpose).next().transpose()
}
