//! One conversion process: started without environment, fed, read, and judged by its end.

use crate::{bounds::REPLY_BYTES_MAX, error::Error, reply::READ_MARK};
use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

/// A process that waits for its request.
///
/// Dropped: it is killed.
#[derive(Debug)]
pub(crate) struct Process(Child);

/// The result of a process that has ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether the process read the whole request.
    pub(crate) is_read: bool,
    reply: Vec<u8>,
    status: ExitStatus,
}

impl Process {
    /// Starts the program. It raises its walls and waits.
    pub(crate) fn start(program: &Path) -> Result<Self, Error> {
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
        Ok(Self(child))
    }

    /// Sends the only request and waits for the end of the process. Both directions at once: a program that ends early must not leave
    /// the writer waiting.
    ///
    /// Dropped midway: the process is killed.
    pub(crate) async fn converse(self, request: &[u8]) -> Result<Outcome, Error> {
        let Self(mut child) = self;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A program that ended before it read everything says why by its exit status.
                drop(stdin.write_all(request).await);
            }
        };
        let read = async move {
            let (mut is_read, mut reply) = (false, vec![]);
            if let Some(mut stdout) = stdout {
                is_read = stdout.read_u8().await.is_ok_and(|mark| mark == READ_MARK);
                stdout.take(REPLY_BYTES_MAX as u64 + 1).read_to_end(&mut reply).await?;
            }
            std::io::Result::Ok((is_read, reply))
        };
        let ((), output) = tokio::join!(write, read);
        let (is_read, reply) = output.map_err(Error::Io)?;
        if reply.len() > REPLY_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let status = child.wait().await.map_err(Error::Io)?;
        Ok(Outcome { is_read, reply, status })
    }
}

impl Outcome {
    /// The reply, or why there is none.
    pub(crate) fn reply(self) -> Result<Vec<u8>, Error> {
        if !self.status.success() {
            return Err(failure(self.status));
        }
        // A program of an earlier version answers without the mark.
        if self.is_read {
            Ok(self.reply)
        } else {
            Err(Error::Protocol(postcard::Error::DeserializeBadEncoding))
        }
    }
}

fn failure(status: ExitStatus) -> Error {
    match status.signal() {
        Some(libc::SIGXCPU) => Error::TooSlow,
        // No memory left, no stack left, or chosen by the kernel because the machine has no memory left.
        Some(libc::SIGABRT | libc::SIGKILL) => Error::TooLarge,
        Some(_) | None => Error::Crashed(status.to_string()),
    }
}
