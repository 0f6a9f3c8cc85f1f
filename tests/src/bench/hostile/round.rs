//! The result of one round of an attack.

/// Done, or refused with a code.
pub(super) type Round = Result<(), String>;
