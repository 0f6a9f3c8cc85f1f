//! Who may do what: agents, the tools that they have, permissions, and the levels at which settings are made.

pub mod agent;
pub mod level;
pub mod permission;
pub mod tool;
