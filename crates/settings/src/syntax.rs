//! The syntaxes of settings, each as nodes with positions.

pub(crate) mod builder;
pub(crate) mod jsonc;
pub(crate) mod yaml;
