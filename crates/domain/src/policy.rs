//! Who may do what: agents, the tools that they have, permissions, the levels at which settings are made, and quotas.

pub mod agent;
pub mod level;
pub mod permission;
pub mod quota;
pub mod tool;
