//! The server of git, as a push speaks with it: the broker asks for references and objects and sends one command, in git's own protocol. No git program
//! speaks with a server, so none needs a network or the credential.

pub(super) mod exchange;
pub(super) mod lfs;
mod packet;

pub(super) mod receive;
pub(super) mod report;
pub(super) mod server;
pub(super) mod upload;
