//! Calls about what setups make on top of images.

use super::{
    call::id,
    open,
    server::{ResponseStream, STREAM_WAITING_MAX},
};
use crate::{
    error::Error,
    exec::variables::{NO_TERMINAL, environment},
    image::{
        build::BuildOrder,
        builds::{BuildStart, Flight, KnownEnvironmentLayer},
        environment_layer::EnvironmentLayerSpec,
        layer::EnvironmentLayerName,
        manifest::Manifest,
        script::{BuildProgress, BuildStage},
    },
    isolation::{
        launch::Mount,
        root::image::{APT_FILE, APT_INSIDE},
    },
    session::{caller::Caller, shared::Shared, state::Session},
    workspace::{install_run, open::spec::OpenSpec},
};
use domain::ids::TenantId;
use rpc::v1::{self, ErrorCode, build_environment_response::Item};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(super) type BuildStream = ResponseStream<v1::BuildEnvironmentResponse>;
pub(super) type InstallStream = ResponseStream<v1::InstallWorkspaceResponse>;

/// The home of the root of a build.
const HOME: &str = "/root";

type Sender = mpsc::Sender<Result<v1::BuildEnvironmentResponse, Status>>;

/// Begins a build, or follows the one of the same key.
pub(super) async fn build(
    caller: &Caller,
    message: v1::BuildEnvironmentRequest,
) -> Result<BuildStream, Error> {
    let (session, shared) = (&caller.root, &caller.root.shared);
    let has_files = session.find_workspace().await?.is_some_and(|meta| meta.is_of(caller.opening));
    let v1::Image { diff_ids, env } = message.image.unwrap_or_default();
    open::check_image_environment(&env)?;
    if message.hosts.len() > open::HOSTS_MAX {
        return Err(Error::refused(ErrorCode::ArgumentInvalid, "the setup may reach too many hosts"));
    }
    open::check_secrets(&message.secrets)?;
    let spec = EnvironmentLayerSpec {
        tenant: session.key.tenant,
        project: id("project_id", &message.project_id)?,
        image: Manifest::parse(&diff_ids)?,
        script: message.script,
        hosts: message.hosts,
        secrets: message.secrets,
        env,
    };
    let apt = Mount::read(shared.layout.etc().join(APT_FILE), APT_INSIDE);
    let mounts = shared.doors.mounts(&session.key).into_iter().chain([apt]).collect();
    let env = variables(&spec.env, &shared.doors.variables());
    let (name, start) =
        shared.builds.start(&session.key, BuildOrder { spec, env, mounts, has_files }).await?;
    Ok(stream(shared, &name, start))
}

/// Runs the install of a workspace, or follows the one of the same key.
pub(super) async fn install(
    session: &Arc<Session>,
    spec: Option<OpenSpec>,
    left: &CancellationToken,
) -> Result<InstallStream, Error> {
    let invalid = |text: &str| Error::refused(ErrorCode::ArgumentInvalid, text);
    let spec = spec.ok_or_else(|| invalid("the session has files already; install in a new session"))?;
    let (name, start) = install_run::start(session, spec, left).await?;
    let progress = |item| v1::InstallWorkspaceResponse { progress: Some(item) };
    Ok(Box::pin(stream(&session.shared, &name, start).map(move |item| item.map(progress))))
}

fn stream(shared: &Shared, name: &EnvironmentLayerName, start: BuildStart) -> BuildStream {
    let (to, items) = mpsc::channel(STREAM_WAITING_MAX);
    let is_ready = matches!(start, BuildStart::Ready);
    let begin = Item::Build(v1::EnvironmentBuild { key: name.key.hex().to_owned(), is_ready });
    shared.tasks.spawn("environment output", async move {
        if !send(&to, begin).await {
            return;
        }
        match start {
            BuildStart::Ready => drop(send(&to, Item::End(v1::EnvironmentEnd::default())).await),
            BuildStart::Running(flight) => follow(&flight, &to).await,
        }
    });
    Box::pin(ReceiverStream::new(items))
}

/// Lists what the machine knows of a tenant, or of one of its projects.
pub(super) async fn find(
    shared: &Shared,
    request: v1::FindEnvironmentsRequest,
) -> Result<v1::FindEnvironmentsResponse, Error> {
    let known = shared.builds.list(tenant(&request.tenant_id)?).await?;
    let is_meant = |known: &KnownEnvironmentLayer| {
        request.project_id.is_empty() || known.build.project == request.project_id
    };
    let environments = known.into_iter().filter(is_meant).map(to_wire).collect();
    Ok(v1::FindEnvironmentsResponse { environments })
}

/// Reads the log of a build.
pub(super) async fn read_log(
    shared: &Shared,
    request: v1::ReadEnvironmentLogRequest,
) -> Result<v1::ReadEnvironmentLogResponse, Error> {
    let name = EnvironmentLayerName::parse(tenant(&request.tenant_id)?, &request.key)?;
    let (known, log) = shared.builds.log(&name).await?;
    Ok(v1::ReadEnvironmentLogResponse { environment: Some(to_wire(known)), log })
}

pub(super) async fn remove(
    shared: &Shared,
    request: v1::DropEnvironmentRequest,
) -> Result<v1::DropEnvironmentResponse, Error> {
    let name = EnvironmentLayerName::parse(tenant(&request.tenant_id)?, &request.key)?;
    shared.builds.remove(&name).await.map(|()| v1::DropEnvironmentResponse {})
}

fn tenant(text: &str) -> Result<TenantId, Error> {
    id("tenant_id", text)
}

/// The environment of a script. Like commands, it gets the variables of the image; unlike them, it is root.
fn variables(image: &[String], network: &[(&str, &str)]) -> Vec<String> {
    let mut own = HashMap::from([("HOME".to_owned(), HOME.to_owned())]);
    own.insert("APT_CONFIG".to_owned(), APT_INSIDE.to_owned());
    if !image.iter().any(|variable| variable.starts_with("DEBIAN_FRONTEND=")) {
        own.insert("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned());
    }
    environment(own, NO_TERMINAL, network, image)
}

/// Sends what a build prints, and its end. Returns early if the reader disconnects.
async fn follow(flight: &Flight, to: &Sender) {
    let (mut progress, mut offset) = (flight.follow(), 0);
    loop {
        let is_news = |progress: &BuildProgress| progress.log.end() > offset || progress.end.is_some();
        let piece = tokio::select! {
            () = to.closed() => return,
            news = progress.wait_for(is_news) => match news {
                Ok(news) if news.log.end() > offset => Ok(news.log.piece(offset, rpc::CHUNK_BYTES)),
                Ok(news) => Err(news.end.clone()),
                Err(_) => return,
            },
        };
        let is_open = match piece {
            Ok((offset_bytes, data)) => {
                offset = offset_bytes + data.len() as u64;
                send(to, Item::Output(v1::EnvironmentOutput { offset_bytes, data })).await
            }
            Err(end) => {
                let (code, message) = end.map(|end| (end.code, end.message)).unwrap_or_default();
                let code = code.map(|code| code.as_str().to_owned()).unwrap_or_default();
                send(to, Item::End(v1::EnvironmentEnd { code, message })).await;
                return;
            }
        };
        if !is_open {
            return;
        }
    }
}

async fn send(to: &Sender, item: Item) -> bool {
    to.send(Ok(v1::BuildEnvironmentResponse { item: Some(item) })).await.is_ok()
}

fn to_wire(known: KnownEnvironmentLayer) -> v1::Environment {
    let KnownEnvironmentLayer { key, build, is_building, layer } = known;
    let state = match (is_building, &layer) {
        (true, _) => v1::EnvironmentState::Building,
        (false, Some(_)) => v1::EnvironmentState::Ready,
        (false, None) if build.code.is_empty() => v1::EnvironmentState::Removed,
        (false, None) => v1::EnvironmentState::Failed,
    };
    let (size_bytes, used_at_ms) = layer.unwrap_or_default();
    v1::Environment {
        key: key.hex().to_owned(),
        project_id: build.project,
        state: state.into(),
        code: build.code,
        size_bytes,
        started_at_ms: build.started_at_ms,
        ended_at_ms: build.ended_at_ms.unwrap_or_default(),
        used_at_ms,
        message: build.message,
        stage: match build.stage {
            BuildStage::Setup => v1::EnvironmentStage::Setup,
            BuildStage::Install => v1::EnvironmentStage::Install,
        }
        .into(),
    }
}
