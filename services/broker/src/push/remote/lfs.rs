//! Asks the server whether it has the objects of new pointers of Git LFS.

use super::{exchange::explain, server::Server};
use crate::{
    egress::git::{lfs::batch::LfsQuestion, refusal::GitRefusal},
    push::{
        commits::lfs::LfsFile,
        error::PushError,
        problem::{Problem, ProblemKind, Problems},
    },
};
use domain::egress::lfs::{batch::LFS_BATCH_OBJECTS_MAX, pointer::LfsPointer};

impl Server<'_> {
    /// Adds the pointers whose object the server does not have to the problems.
    ///
    /// # Errors
    /// `Unauthorized`, `Unreachable`.
    pub(in crate::push) async fn check_lfs(
        &self,
        files: &[LfsFile],
        problems: &mut Problems,
    ) -> Result<(), PushError> {
        let repository = self.repository.clone().with_repository_ending();
        for batch in files.chunks(LFS_BATCH_OBJECTS_MAX) {
            let pointers: Vec<LfsPointer> = batch.iter().map(|file| file.pointer.clone()).collect();
            let question = LfsQuestion {
                tenant: self.tenant,
                repository: &repository,
                secret: self.secret,
                authorization: &self.authorization,
                pointers: &pointers,
            };
            let results: Vec<bool> = match question.ask(self.servers).await {
                Ok(results) => results.iter().map(Result::is_ok).collect(),
                Err(GitRefusal::LfsUnsupported(_)) => vec![false; batch.len()],
                Err(refusal) => return Err(explain(refusal)),
            };
            for (file, _) in batch.iter().zip(results).filter(|(_, is_there)| !is_there) {
                let LfsFile { commit, path, .. } = file.clone();
                problems.add(Problem { commit, path, kind: ProblemKind::LfsMissing { host: self.host() } });
            }
        }
        Ok(())
    }
}
