//! Git LFS: the pointers that a repository has in place of large contents, the messages with which a client asks a server for these, and the report of a
//! helper that has brought them.

pub mod batch;
pub mod pointer;
pub mod report;
