//! Git LFS: the pointers that a repository has in place of large contents, and the messages with which a client asks a server for these.

pub mod batch;
pub mod pointer;
