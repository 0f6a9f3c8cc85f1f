//! One conversion process: started without environment, fed, read, and judged by its end.

use crate::{
    bounds::{REPLY_BYTES_MAX, WALL_TIME_MAX},
    error::Error,
};
use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

/// Runs the program on one request and returns its reply.
///
/// Dropped midway: the process is killed.
pub(crate) async fn run(program: &Path, request: &[u8]) -> Result<Vec<u8>, Error> {
    // Nothing runs between fork and exec: the program builds its own walls before it reads the request, so that a large service
    // need not copy its page tables for each conversion.
    let child = Command::new(program)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // The signals of a terminal are for the service, which ends its conversions itself.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::Io)?;
    timeout(WALL_TIME_MAX, converse(child, request)).await.map_err(|_| Error::TooSlow)?
}

/// Both directions at once: a program that ends early must not leave the writer waiting.
async fn converse(mut child: Child, request: &[u8]) -> Result<Vec<u8>, Error> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A program that ended before it read everything says why by its exit status.
            drop(stdin.write_all(request).await);
        }
    };
    let read = async move {
        let mut reply = vec![];
        if let Some(stdout) = stdout {
            stdout.take(REPLY_BYTES_MAX as u64 + 1).read_to_end(&mut reply).await?;
        }
        std::io::Result::Ok(reply)
    };
    let ((), reply) = tokio::join!(write, read);
    let reply = reply.map_err(Error::Io)?;
    if reply.len() > REPLY_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let status = child.wait().await.map_err(Error::Io)?;
    if status.success() { Ok(reply) } else { Err(failure(status)) }
}

fn failure(status: ExitStatus) -> Error {
    match status.signal() {
        Some(libc::SIGXCPU) => Error::TooSlow,
        // No memory left, no stack left, or chosen by the kernel because the machine has no memory left.
        Some(libc::SIGABRT | libc::SIGKILL) => Error::TooLarge,
        Some(_) | None => Error::Crashed(status.to_string()),
    }
}
