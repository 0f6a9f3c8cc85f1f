//! Starts conversions: one process for each, as many at a time as there are processors, and as many of shell commands.

use crate::{
    bounds::{REQUEST_BYTES_MAX, TURN_WAIT_MAX},
    error::Error,
    process,
    reply::{Change, Commands, Diff, SchemaVerdict},
    request::{FileEdits, FilePatch, FileVersions, Page, Request, SchemaCheck},
};
use serde::de::DeserializeOwned;
use std::{path::PathBuf, thread::available_parallelism};
use tokio::{sync::Semaphore, time::timeout};

/// The name of the program. Every installation has it beside `flotilla`.
pub const PROGRAM: &str = "flotilla-convert";

/// A starter of conversions.
///
/// Every method has these errors: `TooSlow` and `TooLarge` if the content reaches a bound, `Busy` if other conversions ran all
/// the time, and `Crashed`, `Io` or `Protocol` if the program failed.
///
/// Dropped midway: the process is killed.
#[derive(Debug)]
pub struct Converter {
    program: PathBuf,
    turns: Semaphore,
    /// Of shell commands: they are short, and every call that runs one waits for its permission.
    command_turns: Semaphore,
}

impl Converter {
    /// Prepares conversions by `program`.
    pub fn new(program: PathBuf) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let turns = || Semaphore::new(processors);
        Self { program, turns: turns(), command_turns: turns() }
    }

    /// Converts an HTML page; `None` if it cannot be laid out.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn page(&self, page: Page) -> Result<Option<String>, Error> {
        self.run(&Request::Page(page)).await
    }

    /// Determines the commands that each of these shell command lines would run.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn commands(&self, lines: Vec<String>) -> Result<Vec<Commands>, Error> {
        self.run(&Request::Commands(lines)).await
    }

    /// Edits a file. The inner error is a sentence for the model.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn edits(&self, edits: FileEdits) -> Result<Result<Change, String>, Error> {
        self.run(&Request::Edits(edits)).await
    }

    /// Applies the hunks of a patch. The inner error is a sentence for the model.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn patch(&self, patch: FilePatch) -> Result<Result<Change, String>, Error> {
        self.run(&Request::Patch(patch)).await
    }

    /// Compares two versions of a file.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn diff(&self, versions: FileVersions) -> Result<Diff, Error> {
        self.run(&Request::Diff(versions)).await
    }

    /// Checks a schema, and a value against it.
    ///
    /// # Errors
    /// Those of [`Converter`].
    pub async fn schema(&self, check: SchemaCheck) -> Result<SchemaVerdict, Error> {
        self.run(&Request::Schema(check)).await
    }

    async fn run<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        let turns = match request {
            Request::Commands(_) => &self.command_turns,
            Request::Page(_)
            | Request::Edits(_)
            | Request::Patch(_)
            | Request::Diff(_)
            | Request::Schema(_) => &self.turns,
        };
        let request = postcard::to_allocvec(request).map_err(Error::Protocol)?;
        if request.len() > REQUEST_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let turn = timeout(TURN_WAIT_MAX, turns.acquire()).await;
        // The semaphore is never closed.
        let _turn = turn.map_err(|_| Error::Busy)?.map_err(|_| Error::Busy)?;
        let reply = process::run(&self.program, &request).await?;
        postcard::from_bytes(&reply).map_err(Error::Protocol)
    }
}
