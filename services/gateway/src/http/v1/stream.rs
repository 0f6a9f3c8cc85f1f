//! Event streams of a directory and of a tenant.

mod frame;
mod legacy;
pub(in crate::http) mod live;
mod texts;
mod view;
