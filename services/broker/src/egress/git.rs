//! The door of a session to the servers of git. Programs in the sandbox speak plain HTTP with it: `http://127.0.0.1:3129/github.com/acme/app`. It lets only
//! the requests pass with which git reads, only for repositories below a prefix of the settings, and adds the credential that the settings name. So the
//! credential is never in a sandbox, and reaches no other place. `lfs` reads objects of Git LFS in the same way, and sends those of pushes.

pub mod door;
pub mod rules;
pub mod servers;

pub mod credential;
pub(crate) mod file_pieces;
pub(crate) mod lfs;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod upload_body;

mod exchange;
mod link;
