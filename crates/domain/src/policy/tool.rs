//! The names and specifications of the tools. The worker implements the tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of all tools, sorted.
pub const NAMES: [&str; 18] = [
    "apply_patch",
    "bash",
    "batch",
    "edit",
    "glob",
    "grep",
    "list",
    "multiedit",
    "network",
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

/// The tools that need the permission [`super::permission::EDIT`] and have none of their own, sorted.
pub const EDITING: [&str; 3] = ["apply_patch", "multiedit", "write"];

/// The specification of a tool, for models and clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON schema of its arguments, an object schema. A provider receives only the keywords that it understands.
    pub schema: Value,
}
