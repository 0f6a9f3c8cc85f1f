//! Follows an exec: sends its output from any offset, and its outcome.

use super::record::{Exec, ExecOutcome, ExecProgress, OUTPUT, read_end, write_end};
use crate::error::Error;
use bytes::Bytes;
use rpc::v1::{AttachExecResponse, ErrorCode, ExecOutput, attach_exec_response::Item};
use std::{
    io::SeekFrom,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
    sync::{mpsc, watch},
};

/// The stream of a reader.
pub type Sender = mpsc::Sender<Result<AttachExecResponse, tonic::Status>>;

/// The source of an exec's output.
#[derive(Debug)]
pub enum Source {
    Running(Arc<Exec>),
    /// It ended, in this run of the service or an earlier one.
    Ended(PathBuf),
}

/// Sends the output from `offset` on, and then the outcome. Returns early if the reader disconnects.
pub async fn run(source: Source, offset: u64, to: Sender) {
    let result = match source {
        Source::Running(exec) => follow(&exec, offset, &to).await,
        Source::Ended(directory) => replay(&directory, offset, &to).await,
    };
    match result {
        Ok(()) | Err(AttachError::ReaderLeft) => {}
        Err(AttachError::Cancelled) => {
            let error = Error::refused(ErrorCode::ExecUnknown, "the exec was never started");
            drop(to.send(Err(error.to_status())).await);
        }
        Err(AttachError::Failed(error)) => {
            tracing::error!("the output of an exec could not be read: {error:?}");
            drop(to.send(Err(error.to_status())).await);
        }
    }
}

enum AttachError {
    ReaderLeft,
    /// The exec did not start.
    Cancelled,
    Failed(Error),
}

async fn follow(exec: &Exec, offset: u64, to: &Sender) -> Result<(), AttachError> {
    let mut progress = exec.progress.subscribe();
    let mut reader = Reader { directory: &exec.directory, file: None, offset };
    loop {
        let ExecProgress { output_bytes, end, is_cancelled, .. } = progress.borrow_and_update().clone();
        if is_cancelled {
            return Err(AttachError::Cancelled);
        }
        reader.send_until(output_bytes, to).await?;
        if let Some(end) = end {
            return finish(&exec.directory, &end, to).await;
        }
        wait(&mut progress, to).await?;
    }
}

async fn wait(progress: &mut watch::Receiver<ExecProgress>, to: &Sender) -> Result<(), AttachError> {
    tokio::select! {
        () = to.closed() => Err(AttachError::ReaderLeft),
        // The exec outlives its sender: `exec` holds it.
        changed = progress.changed() => changed.map_err(|_| AttachError::ReaderLeft),
    }
}

async fn replay(directory: &Path, offset: u64, to: &Sender) -> Result<(), AttachError> {
    let output_bytes = tokio::fs::metadata(directory.join(OUTPUT)).await.map_or(0, |metadata| metadata.len());
    let end = match read_end(directory).await {
        Some(end) => end,
        None => {
            let end = ExecOutcome::lost(output_bytes);
            write_end(directory, &end).await;
            end
        }
    };
    let mut reader = Reader { directory, file: None, offset };
    reader.send_until(output_bytes, to).await?;
    finish(directory, &end, to).await
}

async fn finish(directory: &Path, end: &ExecOutcome, to: &Sender) -> Result<(), AttachError> {
    send(to, Item::Exit(end.to_exit(directory).await)).await
}

struct Reader<'a> {
    directory: &'a Path,
    file: Option<File>,
    offset: u64,
}

impl Reader<'_> {
    async fn send_until(&mut self, end: u64, to: &Sender) -> Result<(), AttachError> {
        let failed = |error| AttachError::Failed(Error::io("read output")(error));
        while self.offset < end {
            if self.file.is_none() {
                let mut file = File::open(self.directory.join(OUTPUT)).await.map_err(failed)?;
                file.seek(SeekFrom::Start(self.offset)).await.map_err(failed)?;
                self.file = Some(file);
            }
            let Some(file) = &mut self.file else { return Ok(()) };
            let length = (end - self.offset).min(rpc::CHUNK_BYTES as u64);
            let mut data = Vec::with_capacity(usize::try_from(length).unwrap_or(rpc::CHUNK_BYTES));
            let read = file.take(length).read_to_end(&mut data).await.map_err(failed)?;
            if read == 0 {
                return Ok(());
            }
            send(to, Item::Output(ExecOutput { offset_bytes: self.offset, data: Bytes::from(data) })).await?;
            self.offset += read as u64;
        }
        Ok(())
    }
}

async fn send(to: &Sender, item: Item) -> Result<(), AttachError> {
    to.send(Ok(AttachExecResponse { item: Some(item) })).await.map_err(|_| AttachError::ReaderLeft)
}
