//! Starts conversions: one process for each, as many at a time as there are processors, and as many of shell commands. One tenant
//! gets three quarters of these turns.

use crate::{
    bounds::{REQUEST_BYTES_MAX, TURN_WAIT_MAX},
    error::Error,
    reply::{Change, Commands, Diff, SchemaVerdict},
    request::{FileEdits, FilePatch, FileVersions, Page, Request, SchemaCheck},
    spares::Spares,
};
use domain::ids::TenantId;
use serde::de::DeserializeOwned;
use shares::Shares;
use std::{path::PathBuf, thread::available_parallelism};

/// The name of the program. Every installation has it next to `flotilla`.
pub const PROGRAM: &str = "flotilla-convert";

/// The starter of all conversions of a process. Tenants share their turns.
#[derive(Debug)]
pub struct Converter {
    contents: Lane,
    /// For shell commands: they are short, and every call that runs one waits for its permission.
    commands: Lane,
}

/// The turns of one kind of conversion, and the spares that they use. A spare holds no turn.
#[derive(Debug)]
struct Lane {
    turns: Shares<TenantId>,
    spares: Spares,
}

impl Converter {
    /// Prepares conversions by `program`. No process starts before the first conversion, which needs a runtime of tokio.
    pub fn new(program: PathBuf) -> Self {
        let processors =
            available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
        let lane = |program| Lane { turns: Shares::three_quarters(processors), spares: Spares::new(program) };
        Self { contents: lane(program.clone()), commands: lane(program) }
    }

    /// The conversions of one tenant.
    pub fn of(&self, tenant: TenantId) -> TenantConverter<'_> {
        TenantConverter { converter: self, tenant }
    }
}

/// The conversions of one tenant.
///
/// Every method has these errors: `TooSlow` and `TooLarge` if the content reaches a bound, `Busy` if other conversions ran all
/// the time, and `Crashed`, `Io` or `Protocol` if the program failed.
///
/// Dropped midway: the process is killed.
#[derive(Debug, Clone, Copy)]
pub struct TenantConverter<'a> {
    converter: &'a Converter,
    tenant: TenantId,
}

impl TenantConverter<'_> {
    /// Converts an HTML page; `None` if it cannot be laid out.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn page(&self, page: Page) -> Result<Option<String>, Error> {
        self.run(&Request::Page(page)).await
    }

    /// Determines the commands that each of these shell command lines would run.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn commands(&self, lines: Vec<String>) -> Result<Vec<Commands>, Error> {
        self.run(&Request::Commands(lines)).await
    }

    /// Edits a file. The inner error is a sentence for the model.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn edits(&self, edits: FileEdits) -> Result<Result<Change, String>, Error> {
        self.run(&Request::Edits(edits)).await
    }

    /// Applies the hunks of a patch. The inner error is a sentence for the model.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn patch(&self, patch: FilePatch) -> Result<Result<Change, String>, Error> {
        self.run(&Request::Patch(patch)).await
    }

    /// Compares two versions of a file.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn diff(&self, versions: FileVersions) -> Result<Diff, Error> {
        self.run(&Request::Diff(versions)).await
    }

    /// Checks a schema, and a value against it.
    ///
    /// # Errors
    /// Those of [`TenantConverter`].
    pub async fn schema(&self, check: SchemaCheck) -> Result<SchemaVerdict, Error> {
        self.run(&Request::Schema(check)).await
    }

    async fn run<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        let Converter { contents, commands } = self.converter;
        let Lane { turns, spares } = match request {
            Request::Commands(_) => commands,
            Request::Page(_)
            | Request::Edits(_)
            | Request::Patch(_)
            | Request::Diff(_)
            | Request::Schema(_) => contents,
        };
        let request = postcard::to_allocvec(request).map_err(Error::Protocol)?;
        if request.len() > REQUEST_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let _turn = turns.acquire(self.tenant, TURN_WAIT_MAX).await.map_err(|_| Error::Busy)?;
        let reply = spares.run(&request).await?;
        postcard::from_bytes(&reply).map_err(Error::Protocol)
    }
}
