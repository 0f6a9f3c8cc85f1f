//! GitHub, and GitHub Enterprise Server.

mod answers;
mod api;
mod app;
mod attempts;
mod client;
mod pace;
mod reads;
mod tokens;
mod writes;

pub(crate) use app::NewApp;
pub use client::{Github, GithubSettings};
pub(crate) use reads::FoundRepository;
pub(crate) use tokens::GitUse;
