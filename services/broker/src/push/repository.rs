//! The repository in the directory of a push: what is loaded into it, and what is read of it. Each of its gits runs behind walls.

use super::{
    bundle::BUNDLE_PACK,
    directories::PushDirectory,
    error::PushError,
    git::{GitEnd, Input, Output, WalledGit},
    objects::missing,
    request::ObjectId,
};

/// Git takes no object that it warns of. The paths of git's own directory are left to the inspection, which says where they are.
const STRICT: &str = "--strict=hasDotgit=ignore,badFilemode=error";
/// Bytes that git prints when it has loaded a pack: its name.
const LOADED_BYTES_MAX: usize = 1_024;

/// The repository in which one push works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repository<'a> {
    pub(super) git: &'a WalledGit,
    pub(super) directory: &'a PushDirectory,
}

impl Repository<'_> {
    /// Loads a pack of the server, which is a file of the directory.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    pub(super) async fn load(&self, pack: &str) -> Result<(), PushError> {
        let arguments = ["index-pack", "--stdin"];
        self.succeed(&arguments, Input::File(pack), Output::Bytes(LOADED_BYTES_MAX)).await
    }

    /// Loads the pack of the bundle. Checks each of its objects, and that nothing that it names is missing.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    pub(super) async fn load_bundle(&self) -> Result<(), PushError> {
        let arguments = ["index-pack", "--stdin", "--fix-thin", STRICT];
        self.succeed(&arguments, Input::File(BUNDLE_PACK), Output::Bytes(LOADED_BYTES_MAX)).await
    }

    /// Reads these objects, in this order, as `parse_batch` takes them.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`, `TooLarge`.
    pub(super) async fn read(&self, objects: &[&ObjectId]) -> Result<Vec<u8>, PushError> {
        if objects.is_empty() {
            return Ok(vec![]);
        }
        let list: String = objects.iter().map(|object| format!("{object}\n")).collect();
        self.check(&["cat-file", "--batch"], Input::Bytes(list.as_bytes())).await
    }

    /// Adds a commit with this text.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    pub(super) async fn add_commit(&self, text: &str) -> Result<ObjectId, PushError> {
        self.name(&["hash-object", "-t", "commit", "-w", "--stdin"], text.as_bytes()).await
    }

    /// Runs a git that prints the name of an object.
    ///
    /// # Errors
    /// `ContentInvalid`, `Failed`.
    pub(super) async fn name(&self, arguments: &[&str], input: &[u8]) -> Result<ObjectId, PushError> {
        let output = self.check(arguments, Input::Bytes(input)).await?;
        ObjectId::parse(String::from_utf8_lossy(&output).trim()).ok_or_else(missing)
    }

    /// Runs a git whose output is for us alone.
    ///
    /// # Errors
    /// Those of [`WalledGit::check`].
    pub(super) async fn check(&self, arguments: &[&str], input: Input<'_>) -> Result<Vec<u8>, PushError> {
        self.git.check(self.directory, arguments, input).await
    }

    /// Runs a git that may fail because of what it reads.
    ///
    /// # Errors
    /// `ContentInvalid`: it failed, and says why; `Failed`, `TooLarge`.
    pub(super) async fn succeed(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        output: Output<'_>,
    ) -> Result<(), PushError> {
        let GitEnd { is_success, errors, .. } =
            self.git.run(self.directory, arguments, input, output).await?;
        if is_success { Ok(()) } else { Err(PushError::ContentInvalid(errors)) }
    }
}
