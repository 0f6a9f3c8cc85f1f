//! Issues and pull requests of a forge: what the forge tells is stored first, and becomes prompts of sessions then. Jobs of workers show the work there.

pub(crate) mod deliveries;
pub(crate) mod installations;
pub(crate) mod intake;
pub(crate) mod missed;
