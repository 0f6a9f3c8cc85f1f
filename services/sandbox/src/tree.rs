//! The files of one workspace, before any session works in them: `source` is what they may start from, and `meta` what they did start from.
//! `track` takes a snapshot of them, `known` tells whether the newest one still stands for them, and `empty` is the workspace that sessions without
//! files start with.

pub mod empty;
pub(crate) mod known;
pub mod meta;
pub mod source;
pub(crate) mod track;
