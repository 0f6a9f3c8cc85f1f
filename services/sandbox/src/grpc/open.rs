//! The stream that opens a workspace: a header, then the bytes of a bundle.

use super::{
    call::{Call, id, to_status},
    server::Server,
};
use crate::{
    error::Error,
    image::{layer::EnvironmentLayerName, manifest::Manifest},
    session::{draft::DraftKey, shared::Shared, state::Session},
    tree::source::{self, LfsOrigins},
    workspace::{
        close,
        install::key::{Install, InstallSpec},
        open::{
            reading::{self, Question},
            run::upload,
            spec::OpenSpec,
        },
    },
};
use domain::{
    egress::{
        git::{GIT_CREDENTIALS_MAX, GitPrefix},
        secrets::SECRET_VARIABLE_BYTES_MAX,
    },
    ids::{ProjectId, SessionId},
    limits::{self, ENVIRONMENT_SECRETS_MAX, SECRET_NAME_BYTES_MAX, SOURCE_FILES_MAX},
    session::environment::{SandboxOptions, is_script},
    text,
};
use rpc::v1::{self, ErrorCode, open_workspace_request::Part};
use sha2::{Digest as _, Sha256};
use std::{pin::Pin, sync::Arc};
use tokio::io::AsyncWriteExt as _;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

/// Entries of one list of hosts, for all levels of settings. Beyond it: `argument_invalid`.
pub(super) const HOSTS_MAX: usize = 1_000;
/// Bytes of the version of a secret, with what stands between it and the names.
const VERSION_BYTES: usize = 22;
/// Bytes of the environment of an image. Beyond it: `argument_invalid`.
const IMAGE_ENV_BYTES_MAX: usize = 64 * 1024;

/// A header, and then the bytes of a bundle.
pub(super) type WorkspaceParts = Pin<Box<dyn Stream<Item = Result<v1::OpenWorkspaceRequest, Status>> + Send>>;

impl Server {
    /// Reads what a workspace starts from: the header, and the bytes of a bundle that follow it, unless the call takes files that were cloned ahead.
    pub(super) async fn begin_opening(
        &self,
        method: &'static str,
        request: Request<WorkspaceParts>,
        takes_draft: bool,
    ) -> Result<(Call, Option<OpenSpec>), Status> {
        let (metadata, extensions, mut parts) = request.into_parts();
        let first = parts.next().await.transpose()?.and_then(|message| message.part);
        let Some(Part::Header(header)) = first else {
            let error = Error::refused(ErrorCode::ArgumentInvalid, "the first message must be the header");
            return Err(to_status(method, &error));
        };
        let (call, header) = self.begin(method, Request::from_parts(metadata, extensions, header))?;
        let spec = read(&call.caller.root, call.caller.opening, header, &mut parts, takes_draft)
            .instrument(call.span.clone())
            .await
            .map_err(|error| to_status(method, &error))?;
        Ok((call, spec))
    }

    /// Reads what a source has for agents.
    pub(super) async fn read_of_source(
        &self,
        request: Request<Streaming<v1::ReadSourceRequest>>,
    ) -> Result<Response<v1::ReadSourceResponse>, Status> {
        let (call, spec, question) = self.begin_reading(request).await?;
        let root = Arc::clone(&call.caller.root);
        call.perform(|left| async move {
            let Some(spec) = spec else { return Ok(v1::ReadSourceResponse::default()) };
            let read = Box::pin(reading::run(&root, &spec, &question, &left)).await;
            if question.is_ahead {
                // It has nothing but the door.
                close::run(&root).await?;
            }
            read
        })
        .await
    }

    /// Reads the question: it stands with the header, and the bytes of a bundle follow.
    async fn begin_reading(
        &self,
        request: Request<Streaming<v1::ReadSourceRequest>>,
    ) -> Result<(Call, Option<OpenSpec>, Question), Status> {
        const METHOD: &str = "read_source";
        let (metadata, extensions, mut messages) = request.into_parts();
        let first = messages.next().await.transpose()?.unwrap_or_default();
        let v1::ReadSourceRequest { workspace, mut instructions, known_commit, ahead: is_ahead, files } =
            first;
        if files.len() > SOURCE_FILES_MAX || files.iter().any(|file| file.path.len() > limits::PATH_BYTES_MAX)
        {
            let text = format!(
                "one call reads at most {SOURCE_FILES_MAX} files, with paths of {} bytes",
                limits::PATH_BYTES_MAX
            );
            return Err(to_status(METHOD, &Error::refused(ErrorCode::ArgumentInvalid, text)));
        }
        // No file has such a name, and no helper could get it.
        instructions.retain(|name| name.len() <= limits::PATH_BYTES_MAX && !name.contains('\0'));
        instructions.truncate(limits::SETTINGS_INSTRUCTIONS_MAX);
        let rest = messages.map(|message| message.map(|message| message.workspace.unwrap_or_default()));
        let parts = tokio_stream::once(Ok(workspace.unwrap_or_default())).chain(rest);
        let parts = Request::from_parts(metadata, extensions, Box::pin(parts) as WorkspaceParts);
        let (mut call, spec) = self.begin_opening(METHOD, parts, true).await?;
        // It changes nothing of a session, so no other caller is shut out.
        call.caller.epoch = None;
        let project = spec.as_ref().and_then(|spec| spec.project.as_ref());
        let door = project.map(SessionId::of_warm_ups);
        if is_ahead && door.as_ref() != Some(&call.caller.session.key.session) {
            let text = "only the session of the warm-ups of its project reads ahead";
            return Err(to_status(METHOD, &Error::refused(ErrorCode::ArgumentInvalid, text)));
        }
        Ok((call, spec, Question { instructions, files, known_commit, is_ahead }))
    }
}

/// The stream of a call that names a workspace as an opening does.
pub(super) fn workspace_parts<M: Send + 'static>(
    request: Request<Streaming<M>>,
    part: fn(M) -> v1::OpenWorkspaceRequest,
) -> Request<WorkspaceParts> {
    request.map(|messages| Box::pin(messages.map(move |message| message.map(part))) as WorkspaceParts)
}

/// Reads what a workspace starts from; `None` if the session already has one. The bytes of a bundle go to a file, unless
/// `takes_draft` and the machine has cloned it ahead.
pub(super) async fn read(
    session: &Session,
    opening: Option<u32>,
    header: v1::WorkspaceHeader,
    parts: &mut WorkspaceParts,
    takes_draft: bool,
) -> Result<Option<OpenSpec>, Error> {
    if session
        .find_workspace()
        .await?
        .is_some_and(|meta| opening.is_none_or(|opening| meta.opening >= opening))
    {
        return Ok(None);
    }
    let opening = opening.unwrap_or_default();
    session.disk.check_host()?;
    let git_prefixes = git_prefixes(&header.git_prefixes)?;
    let project = Some(header.project_id.as_str()).filter(|text| !text.is_empty());
    let project = project.map(|text| id("project_id", text)).transpose()?;
    let install = read_install(session, &header, project.as_ref())?;
    let v1::Image { diff_ids, env } = header.image.unwrap_or_default();
    let mut image = Manifest::parse(&diff_ids)?;
    if !header.environment_key.is_empty() {
        if image.is_empty() {
            return Err(Error::refused(ErrorCode::ArgumentInvalid, "an environment needs an image"));
        }
        // The tenant is that of the session, so a key of another tenant leads nowhere.
        image = image.with(EnvironmentLayerName::parse(session.key.tenant, &header.environment_key)?);
    }
    check_image_environment(&env)?;
    let start = read_start(header.start)?;
    let options = read_options(header.options.unwrap_or_default(), &session.shared)?;
    if header.bundle && !header.git_url.is_empty() {
        return Err(Error::refused(
            ErrorCode::ArgumentInvalid,
            "a workspace starts from a URL or a bundle, not both",
        ));
    }
    // A bundle without a digest is like no other.
    let source_name = match (header.bundle, header.bundle_sha256.is_empty()) {
        (true, true) => uuid::Uuid::now_v7().to_string(),
        (true, false) => header.bundle_sha256.clone(),
        (false, _) => header.git_url.clone(),
    };
    let v1::WorkspaceHeader { revision, branch, uncommitted, lfs_url, lfs_session_id: lfs_session, .. } =
        header;
    let (source, has_door) = (source_name, false);
    let key = DraftKey { source, revision, branch, uncommitted, has_door, lfs_url, lfs_session, opening };
    let source = if header.bundle {
        let file = upload(session)?;
        let has_draft = session.files.lock().await.draft.as_ref().is_some_and(|draft| draft.key == key);
        if !(takes_draft && has_draft) {
            receive(file.path(), &header.bundle_sha256, parts).await?;
        }
        Some(source::Source::Bundle(file))
    } else if header.git_url.is_empty() {
        None
    } else {
        Some(source::parse(&header.git_url, &git_prefixes, &session.shared.config).await?)
    };
    let has_door = source.as_ref().is_some_and(source::Source::has_server) && !git_prefixes.is_empty();
    let key = DraftKey { has_door, ..key };
    let lfs = read_lfs_origins(session, source.as_ref(), &key)?;
    let base_commit = header.base_commit;
    Ok(Some(OpenSpec { source, lfs, key, image, env, install, start, options, project, base_commit }))
}

/// Where the objects of Git LFS come from. Without doors, no server is asked.
fn read_lfs_origins(
    session: &Session,
    source: Option<&source::Source>,
    key: &DraftKey,
) -> Result<LfsOrigins, Error> {
    let with_door = source.filter(|_| session.shared.doors.home(&session.key).is_some());
    let repository = with_door.map(|source| source.lfs_repository(&key.lfs_url)).transpose()?.flatten();
    let origin = Some(&key.lfs_session).filter(|text| !text.is_empty());
    let origin = origin.map(|text| id("lfs_session_id", text)).transpose()?;
    Ok(LfsOrigins { repository, session: origin })
}

/// The script that starts a sandbox; empty: none.
fn read_start(script: String) -> Result<String, Error> {
    if !script.is_empty() && !is_script(&script) {
        let text = "the script that starts a sandbox is too long, or it contains a zero byte";
        return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    }
    Ok(script)
}

/// What the programs of its sandboxes may also do, if the machine offers it.
fn read_options(asked: v1::SandboxOptions, shared: &Shared) -> Result<SandboxOptions, Error> {
    let v1::SandboxOptions { allow_ptrace, allow_user_namespaces } = asked;
    let offer = shared.config.offer();
    let refusal = if allow_ptrace && !offer.allow_ptrace {
        "does not offer allow_ptrace: its operator has to add ptrace to FLOTILLA_SANDBOX_OPTIONS"
    } else if allow_user_namespaces && !offer.allow_user_namespaces {
        "does not offer allow_user_namespaces: its operator has to add user-namespaces to FLOTILLA_SANDBOX_OPTIONS"
    } else if allow_user_namespaces && !shared.launcher.facts().cgroup.limits_memory() {
        // The watchdog inside does not see what programs mount.
        "cannot offer allow_user_namespaces: it has no control groups that limit memory"
    } else {
        return Ok(SandboxOptions { allow_ptrace, allow_user_namespaces });
    };
    Err(Error::refused(ErrorCode::OptionsUnsupported, format!("the sandbox machine {refusal}")))
}

/// What the workspace gets in addition to the files of its source. An agent may have written those of a copy, so no script runs with them.
fn read_install(
    session: &Session,
    header: &v1::WorkspaceHeader,
    project: Option<&ProjectId>,
) -> Result<Option<Install>, Error> {
    let invalid = |text: &str| Error::refused(ErrorCode::ArgumentInvalid, text);
    let Some(v1::WorkspaceInstall { script, hosts, secrets }) = header.install.clone() else {
        let key = Some(header.install_key.as_str()).filter(|key| !key.is_empty());
        let name = key.map(|key| EnvironmentLayerName::parse(session.key.tenant, key)).transpose()?;
        return Ok(name.map(Install::Copied));
    };
    if header.is_copy() || !header.install_key.is_empty() {
        return Err(invalid("no install runs with a copy of the files of a session"));
    }
    if !is_script(&script) {
        return Err(invalid("the script of an install is empty or too long, or it contains a zero byte"));
    }
    if hosts.len() > HOSTS_MAX {
        return Err(invalid("the install may reach too many hosts"));
    }
    check_secrets(&secrets)?;
    let project = project.cloned().ok_or_else(|| invalid("an install needs the project_id"))?;
    Ok(Some(Install::Script(InstallSpec { project, script, hosts, secrets })))
}

/// Checks the names and versions of the secrets of a script. The machine reads none of them; they only name what the script makes.
pub(super) fn check_secrets(secrets: &[String]) -> Result<(), Error> {
    let bytes_max = SECRET_VARIABLE_BYTES_MAX + SECRET_NAME_BYTES_MAX + VERSION_BYTES;
    if secrets.len() > ENVIRONMENT_SECRETS_MAX || secrets.iter().any(|secret| secret.len() > bytes_max) {
        return Err(Error::refused(
            ErrorCode::ArgumentInvalid,
            "a script gets at most 16 secrets, and their names have at most 100 bytes",
        ));
    }
    Ok(())
}

/// Reads the prefixes of URLs of repositories that the broker opens.
fn git_prefixes(texts: &[String]) -> Result<Vec<GitPrefix>, Error> {
    let read: Result<Vec<_>, _> = texts.iter().map(|text| GitPrefix::parse(text)).collect();
    let read = read.map_err(|error| {
        Error::refused(
            ErrorCode::ArgumentInvalid,
            format!("a prefix of the URLs of repositories cannot be one: {error}"),
        )
    })?;
    if read.len() > GIT_CREDENTIALS_MAX {
        return Err(Error::refused(
            ErrorCode::ArgumentInvalid,
            "there are too many prefixes of the URLs of repositories",
        ));
    }
    Ok(read)
}

pub(super) fn check_image_environment(env: &[String]) -> Result<(), Error> {
    let bytes: usize = env.iter().map(|variable| variable.len() + 1).sum();
    let is_variable = |variable: &String| {
        variable.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !variable.contains('\0')
    };
    if bytes > IMAGE_ENV_BYTES_MAX || !env.iter().all(is_variable) {
        let text = "the environment of the image is too large, or a variable in it is not NAME=value";
        return Err(Error::refused(ErrorCode::ArgumentInvalid, text));
    }
    Ok(())
}

async fn receive(file: &std::path::Path, sha256: &str, parts: &mut WorkspaceParts) -> Result<(), Error> {
    let failed = || Error::io("keep the upload");
    let mut options = tokio::fs::OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o644).open(file).await.map_err(failed())?;
    let (mut total, mut hash) = (0, Sha256::new());
    loop {
        let message = parts.next().await.transpose().map_err(|status| {
            Error::refused(
                ErrorCode::BundleInvalid,
                format!("the upload was interrupted: {}", status.message()),
            )
        })?;
        match message.map(|message| message.part) {
            None => break,
            Some(Some(Part::Data(data))) => {
                total += data.len() as u64;
                if total > limits::BUNDLE_BYTES_MAX {
                    let text =
                        format!("the bundle is too large; the limit is {} bytes", limits::BUNDLE_BYTES_MAX);
                    return Err(Error::refused(ErrorCode::BundleTooLarge, text));
                }
                hash.update(&data);
                out.write_all(&data).await.map_err(failed())?;
            }
            Some(Some(Part::Header(_)) | None) => {
                return Err(Error::refused(
                    ErrorCode::ArgumentInvalid,
                    "after the header only data may follow",
                ));
            }
        }
    }
    out.flush().await.map_err(failed())?;
    if !sha256.is_empty() && text::hex(&hash.finalize()) != sha256 {
        return Err(Error::refused(
            ErrorCode::BundleInvalid,
            "the bundle is incomplete or damaged; upload it again",
        ));
    }
    Ok(())
}
