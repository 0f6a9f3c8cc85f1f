//! Git LFS: the pointers that a repository has in place of large contents, the messages with which a client asks a server for these, the wait for those that
//! another session brings, and the report of a helper that has brought them.

pub mod arrivals;
pub mod batch;
pub mod pointer;
pub mod report;
