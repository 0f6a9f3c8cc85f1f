//! The doors of the sessions of a stack, reached without the sessions.

use crate::Stack;
use std::{os::fd::AsRawFd as _, path::PathBuf};
use tokio::net::UnixStream;

/// The directory of the door of a session.
pub fn door(stack: &Stack, session: &str) -> PathBuf {
    let tenants = std::fs::read_dir(&stack.broker_settings().egress).unwrap();
    let mut doors = tenants.map(|tenant| tenant.unwrap().path().join(session).join("door"));
    doors.find(|door| door.exists()).unwrap()
}

/// Connects to a socket of the door of a session.
pub async fn connect(stack: &Stack, session: &str, socket: &str) -> UnixStream {
    // The address of a socket has at most 107 bytes, fewer than the path may have.
    let opened = std::fs::File::open(door(stack, session)).unwrap();
    UnixStream::connect(format!("/proc/self/fd/{}/{socket}", opened.as_raw_fd())).await.unwrap()
}
