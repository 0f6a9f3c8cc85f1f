//! Who may do what: agents, the tools that they have, permissions, the levels at which settings are made, references in settings, quotas, and the roles of keys.

pub mod agent;
pub mod level;
pub mod permission;
pub mod quota;
pub mod reference;
pub mod role;
pub mod tool;
