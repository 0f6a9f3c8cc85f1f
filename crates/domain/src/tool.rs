//! The names of the tools, for whoever must know them without having them: the worker has the tools.

/// All of them, sorted.
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
