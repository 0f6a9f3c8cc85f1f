//! The tools, for whoever must know of them without having them: the worker has the tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of all of them, sorted.
pub const NAMES: [&str; 17] = [
    "apply_patch",
    "bash",
    "batch",
    "edit",
    "glob",
    "grep",
    "list",
    "multiedit",
    "plan_exit",
    "question",
    "read",
    "skill",
    "task",
    "todoread",
    "todowrite",
    "webfetch",
    "write",
];

/// A tool as models see it, and clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name in calls.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON schema of its arguments, an object schema. What a provider does not understand of it is left out.
    pub schema: Value,
}
