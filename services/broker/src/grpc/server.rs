//! `BrokerService`: puts secrets into the vault, pulls images, opens doors to the network, and pushes. No call returns the value of a secret; a door gives
//! some to the script of a setup or an install.

use super::{
    call::Call,
    ids::{door, project, session, tenant},
    images, pages, push,
};
use crate::{
    egress::{
        doors::Doors,
        error::EgressError,
        git::rules::{GitRules, GitRulesError},
        rules::{DoorRules, DoorStage, Grant, RuleList},
    },
    error::Error,
    images::{puller::Puller, stream::LayerStream},
    push::pusher::Pushes,
    secrets::vault::{NewSecret, Vault},
};
use chassis::secret::SecretBytes;
use domain::{
    egress::{git::GIT_CREDENTIALS_MAX, host::HostName, secret_servers::SecretServers},
    limits,
    secret::{SecretAddress, SecretName},
};
use futures::{StreamExt as _, stream::Map};
use rpc::v1::{self, broker_service_server::BrokerService};
use std::{sync::Arc, time::Duration};
use store::{Actor, broker::BrokerStore};
use tonic::{Request, Response, Status, Streaming};

/// Lists of one door: one for each level of settings. Beyond it: `argument_invalid`.
const LISTS_MAX: usize = 4;
/// Longest time for which hosts that people have allowed are open without another call; milliseconds. Beyond it they close after this time.
const GRANT_MS_MAX: u32 = 3_600_000;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) vault: Arc<Vault>,
    /// `None`: this broker opens none.
    pub(crate) doors: Option<Arc<Doors>>,
    pub(crate) puller: Puller,
    pub(crate) pushes: Pushes,
    /// Where the doors note what sessions reach.
    pub(crate) store: BrokerStore,
}

#[tonic::async_trait]
impl BrokerService for Server {
    async fn put_secret(
        &self,
        request: Request<v1::PutSecretRequest>,
    ) -> Result<Response<v1::PutSecretResponse>, Status> {
        let call = Call::new("PutSecret", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        // A caller that leaves ends the change: the secret then has its old version, or already the new one.
        call.run(&metadata, self.put(request)).await
    }

    async fn open_egress(
        &self,
        request: Request<v1::OpenEgressRequest>,
    ) -> Result<Response<v1::OpenEgressResponse>, Status> {
        let call = Call::new("OpenEgress", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        call.run(&metadata, async { self.open(request) }).await
    }

    async fn grant_hosts(
        &self,
        request: Request<v1::GrantHostsRequest>,
    ) -> Result<Response<v1::GrantHostsResponse>, Status> {
        let call = Call::new("GrantHosts", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        call.run(&metadata, async { self.grant(request) }).await
    }

    async fn flush_egress(
        &self,
        request: Request<v1::FlushEgressRequest>,
    ) -> Result<Response<v1::FlushEgressResponse>, Status> {
        let call = Call::new("FlushEgress", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        call.run(&metadata, self.flush(request)).await
    }

    type ReadPageStream = pages::PageResponses;

    async fn read_page(
        &self,
        request: Request<v1::ReadPageRequest>,
    ) -> Result<Response<Self::ReadPageStream>, Status> {
        let call = Call::new("ReadPage", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        call.run(&metadata, pages::read(self.doors.clone(), request)).await
    }

    async fn resolve_image(
        &self,
        request: Request<v1::ResolveImageRequest>,
    ) -> Result<Response<v1::ResolveImageResponse>, Status> {
        let call = Call::new("ResolveImage", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        call.run(&metadata, images::resolve(&self.puller, request)).await
    }

    type PullLayerStream = Map<LayerStream, fn(images::StreamItem) -> Result<v1::PullLayerResponse, Status>>;

    async fn pull_layer(
        &self,
        request: Request<v1::PullLayerRequest>,
    ) -> Result<Response<Self::PullLayerStream>, Status> {
        let call = Call::new("PullLayer", &request, &request.get_ref().tenant_id);
        let (metadata, _, request) = request.into_parts();
        let pull = async {
            let stream = images::pull(&self.puller, request).await?;
            Ok(stream.map(images::to_response as fn(_) -> _))
        };
        call.run(&metadata, pull).await
    }

    async fn push(
        &self,
        request: Request<Streaming<v1::PushRequest>>,
    ) -> Result<Response<v1::PushResponse>, Status> {
        let call = Call::new("Push", &request, "");
        let (metadata, _, mut messages) = request.into_parts();
        // Nothing of the stream is read for a caller that may not push.
        let push = async {
            let header = push::header(&mut messages).await?;
            tracing::Span::current().record("tenant.id", &header.tenant_id);
            push::push(&self.pushes, header, messages).await
        };
        // Boxed because the future is large and rarely needed.
        call.run(&metadata, Box::pin(push)).await
    }
}

impl Server {
    async fn put(&self, mut request: v1::PutSecretRequest) -> Result<v1::PutSecretResponse, Error> {
        let value = SecretBytes::of(std::mem::take(&mut request.value));
        let (tenant, project) = (tenant(&request.tenant_id)?, project(&request.project_id)?);
        let name: SecretName = request.name.parse()?;
        let is_name = |text: &str| text.len() <= limits::NAME_BYTES_MAX && !text.contains('\0');
        if request.actor.is_empty() || !is_name(&request.actor) || !is_name(&request.actor_key) {
            return Err(Error::ArgumentInvalid("the actor is missing or too long"));
        }
        let servers = SecretServers::parse(&request.urls)?;
        let actor =
            Actor { name: std::mem::take(&mut request.actor), key: std::mem::take(&mut request.actor_key) };
        let new = NewSecret { address: SecretAddress { project, name }, servers, actor: &actor };
        let secret = self.vault.put(tenant, new, &value).await?;
        let (version, created_at_ms) = (secret.version, secret.created_at.0);
        Ok(v1::PutSecretResponse { version, created_at_ms, urls: secret.urls })
    }

    fn grant(&self, request: v1::GrantHostsRequest) -> Result<v1::GrantHostsResponse, Error> {
        let doors = self.doors.as_ref().ok_or(Error::NoDoors)?;
        let v1::GrantHostsRequest { tenant_id, workspace_session_id, session_id, epoch, hosts, valid_ms } =
            request;
        let key = door(&tenant_id, &workspace_session_id)?;
        let host = |text: String| HostName::parse(&text).map(|host| host.as_str().to_owned());
        let hosts = hosts.into_iter().map(host).collect::<Result<_, _>>();
        let hosts = hosts.map_err(|_| Error::ArgumentInvalid("what people have allowed is not a host"))?;
        let time = Duration::from_millis(valid_ms.min(GRANT_MS_MAX).into());
        doors.grant(&key, session(&session_id)?, Grant::valid_for(time, epoch, hosts))?;
        Ok(v1::GrantHostsResponse {})
    }

    async fn flush(&self, request: v1::FlushEgressRequest) -> Result<v1::FlushEgressResponse, Error> {
        let key = door(&request.tenant_id, &request.session_id)?;
        // Without doors, no session reaches anything through this broker.
        if let Some(doors) = &self.doors {
            doors.store_session_accesses(&self.store, &key).await?;
        }
        Ok(v1::FlushEgressResponse {})
    }

    fn open(&self, request: v1::OpenEgressRequest) -> Result<v1::OpenEgressResponse, Error> {
        let doors = self.doors.as_ref().ok_or(Error::NoDoors)?;
        let key = door(&request.tenant_id, &request.session_id)?;
        if request.lists.len() > LISTS_MAX {
            return Err(Error::ArgumentInvalid("there are more lists than levels of settings"));
        }
        if request.git_credentials.len() > GIT_CREDENTIALS_MAX {
            return Err(EgressError::from(GitRulesError::TooMany).into());
        }
        let lists = request.lists.into_iter();
        let lists =
            lists.map(|v1::AllowList { setting, entries, ask }| RuleList { setting, entries, ask }).collect();
        let credentials = request.git_credentials.into_iter();
        let credentials = credentials.map(|credential| (credential.url_prefix, credential.secret)).collect();
        let project = Some(request.project_id).filter(|project| !project.is_empty());
        let secrets = request.secrets.into_iter().map(|secret| (secret.variable, secret.secret)).collect();
        let public = Some(request.public_repository).filter(|url| !url.is_empty());
        let git = GitRules { project, credentials, public };
        let rules = DoorRules { lists, git, secrets, ..DoorRules::default() };
        let stage = match request.workspace_opening {
            None => DoorStage::Unknown,
            Some(opening) if request.has_files => DoorStage::Open(opening),
            Some(opening) => DoorStage::Before(opening),
        };
        doors.open(&key, &rules, stage)?;
        Ok(v1::OpenEgressResponse {})
    }
}
