//! Objects of Git LFS at the server: whether it has those of new pointers, and the upload of those that a push brings.

use super::{exchange::explain, server::Server};
use crate::{
    egress::git::{
        lfs::{
            batch::{LfsLogin, LfsQuestion},
            upload::{ObjectUpload, UploadFailure},
        },
        refusal::GitRefusal,
    },
    push::{
        commits::{lfs::LfsFile, pointers::LfsObject},
        error::{PushError, plain},
        problem::{Problem, ProblemKind, Problems},
    },
};
use domain::egress::{
    git::GitAddress,
    lfs::{
        batch::{LFS_BATCH_OBJECTS_MAX, LfsUpload},
        pointer::LfsPointer,
    },
};
use futures::future;

/// Objects that a push sends at the same time. The others wait.
const UPLOADS_MAX: usize = 4;

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
            let question = self.lfs_question(&repository, &pointers);
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

    /// Sends the objects that the server lacks.
    ///
    /// # Errors
    /// `Problems`: the server does not take some of them; `Unauthorized`, `Unreachable`.
    pub(in crate::push) async fn upload_lfs(&self, objects: &[LfsObject]) -> Result<(), PushError> {
        let repository = self.repository.clone().with_repository_ending();
        for batch in objects.chunks(LFS_BATCH_OBJECTS_MAX) {
            let pointers: Vec<LfsPointer> = batch.iter().map(|object| object.file.pointer.clone()).collect();
            let question = self.lfs_question(&repository, &pointers);
            let results = self.ask_upload(&question, batch).await?;
            let wanted =
                batch.iter().zip(&results).filter_map(|(object, upload)| Some((object, upload.as_ref()?)));
            let wanted: Vec<(&LfsObject, &LfsUpload)> = wanted.collect();
            for group in wanted.chunks(UPLOADS_MAX) {
                let sent = group.iter().map(|(object, upload)| self.upload(&question, object, upload));
                future::try_join_all(sent).await?;
            }
        }
        Ok(())
    }

    /// A question about objects, with the credential of the push. `repository` is that of the server with its ending.
    fn lfs_question<'a>(&'a self, repository: &'a GitAddress, pointers: &'a [LfsPointer]) -> LfsQuestion<'a> {
        let login = LfsLogin { secret: self.secret, authorization: &self.authorization };
        LfsQuestion { tenant: self.tenant, repository, login: Some(login), pointers }
    }

    /// Asks where the server takes each object of a batch. If it refuses one, none of them is sent: the push would not need the others.
    async fn ask_upload(
        &self,
        question: &LfsQuestion<'_>,
        batch: &[LfsObject],
    ) -> Result<Vec<Option<LfsUpload>>, PushError> {
        let results = match question.ask_upload(self.servers).await {
            Ok(results) => results,
            Err(GitRefusal::LfsUnsupported(host)) => {
                let kind = ProblemKind::LfsUnsupported { host };
                return Err(refused(batch.iter().map(|object| object.problem(kind.clone()))));
            }
            Err(refusal) => return Err(explain(refusal)),
        };
        let problems = batch.iter().zip(&results).filter_map(|(object, result)| {
            let error = result.as_ref().err()?;
            let reason = format!("{} answered {} {}", self.host(), error.code, plain(&error.message));
            Some(object.problem(ProblemKind::LfsRefused { reason }))
        });
        let problems: Vec<Problem> = problems.collect();
        if problems.is_empty() {
            Ok(results.into_iter().map(Result::unwrap_or_default).collect())
        } else {
            Err(refused(problems))
        }
    }

    async fn upload(
        &self,
        question: &LfsQuestion<'_>,
        object: &LfsObject,
        upload: &LfsUpload,
    ) -> Result<(), PushError> {
        let (pointer, content) = (&object.file.pointer, object.content.as_path());
        let sent = ObjectUpload { question, pointer, content }.run(self.servers, upload).await;
        sent.map_err(|failure| match failure {
            UploadFailure::Refused(reason) => refused([object.problem(ProblemKind::LfsRefused { reason })]),
            UploadFailure::Refusal(refusal) => explain(refusal),
            UploadFailure::Io(error) => PushError::failed("read a content", &error),
        })
    }
}

impl LfsObject {
    fn problem(&self, kind: ProblemKind) -> Problem {
        let LfsFile { commit, path, .. } = self.file.clone();
        Problem { commit, path, kind }
    }
}

/// The refusal of a push with these problems.
fn refused(list: impl IntoIterator<Item = Problem>) -> PushError {
    let mut problems = Problems::default();
    for problem in list {
        problems.add(problem);
    }
    PushError::Problems(problems)
}
