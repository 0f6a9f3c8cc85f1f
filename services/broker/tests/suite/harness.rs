//! A broker in this process, with two tenants, a project and a log that the test reads.

use broker::config::Config;
use chassis::{
    Service,
    grpc::{self, ServerCheck},
};
use clap::Parser as _;
use domain::{
    ids::{ProjectId, TenantId},
    session::Source,
};
use rpc::v1::{self, broker_service_client::BrokerServiceClient};
use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};
use store::Store;
use tempfile::TempDir;
use testkit::{database::Database, registry::Registry, sample::Sample};
use tokio::task::JoinHandle;
use tonic::{
    Request, Status, Streaming, metadata::MetadataValue, service::interceptor::InterceptedService,
    transport::Channel,
};
use tracing::subscriber::DefaultGuard;

const TOKEN: &str = "test-token-of-the-broker";

type Auth = fn(Request<()>) -> Result<Request<()>, Status>;
pub type Client = BrokerServiceClient<InterceptedService<Channel, Auth>>;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    config: Config,
}

pub struct Broker {
    pub url: String,
    pub client: Client,
    pub tenants: [TenantId; 2],
    /// A project of the first tenant.
    pub project: ProjectId,
    pub service: Service,
    pub running: JoinHandle<anyhow::Result<()>>,
    log: Log,
    database: Database,
    directory: TempDir,
    _subscriber: DefaultGuard,
}

/// Everything that the process logs, at every level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Keeps what this thread logs, which is all that a test of tokio does.
    pub fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Creates two tenants and a project of the first one.
pub async fn tenants(database: &Database) -> ([TenantId; 2], ProjectId) {
    let (store, mut sample) =
        (Store::connect(&database.app_url, &database.system_url, 1).unwrap(), Sample::new(7));
    let (tenants, project) = ([sample.tenant(), sample.tenant()], sample.project());
    for tenant in tenants {
        store.create_tenant(tenant, &format!("t{tenant}")).await.unwrap();
    }
    store.create_project(tenants[0], &project, "app", &Source::default()).await.unwrap();
    (tenants, project)
}

#[allow(clippy::result_large_err)]
fn authorize(mut request: Request<()>) -> Result<Request<()>, Status> {
    let value = MetadataValue::try_from(format!("Bearer {TOKEN}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    Ok(request)
}

/// A client with a connection of its own.
pub fn client(url: &str, check: &ServerCheck) -> Client {
    BrokerServiceClient::with_interceptor(grpc::channel_with(url, check).unwrap(), authorize as Auth)
}

fn config(directory: &Path, database: &Database, arguments: &[&str]) -> Config {
    let key = directory.join("key");
    let mut fixed = vec!["broker", "--token", TOKEN, "--database-url", &database.broker_url];
    // With a key service, a broker makes no key file.
    if key.exists() || !arguments.contains(&"--kms-url") {
        fixed.extend(["--key-file", key.to_str().unwrap()]);
    }
    Cli::try_parse_from(fixed.into_iter().chain(arguments.iter().copied())).unwrap().config
}

/// Starts a broker, and gives it when it is ready.
async fn run(config: Config) -> (Service, String, JoinHandle<anyhow::Result<()>>) {
    let (service, mut ready) = Service::in_process();
    let running = tokio::spawn(broker::run(config, service.clone()));
    let Ok(ready) = ready.recv().await else {
        panic!("the broker does not start: {:#}", running.await.unwrap().unwrap_err());
    };
    (service, ready.url.clone(), running)
}

impl Broker {
    /// Starts a broker that may reach these registries.
    pub async fn for_registries(registries: &[&Registry]) -> Self {
        let hosts: Vec<&str> = registries.iter().map(|registry| registry.host.as_str()).collect();
        Self::start(&["--registry-plaintext", &hosts.join(",")]).await
    }

    pub async fn start(arguments: &[&str]) -> Self {
        Self::start_checked(arguments, &ServerCheck::default()).await
    }

    /// Starts a broker whose certificate the client checks like this.
    pub async fn start_checked(arguments: &[&str], check: &ServerCheck) -> Self {
        let (log, subscriber) = Log::start();
        let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
        let (tenants, project) = tenants(&database).await;
        let (service, url, running) = run(config(directory.path(), &database, arguments)).await;
        let client = client(&url, check);
        let _subscriber = subscriber;
        Self { url, client, tenants, project, service, running, log, database, directory, _subscriber }
    }

    /// Ends the broker, and starts another one with the same database and key file.
    pub async fn restart(&mut self, arguments: &[&str]) {
        self.service.shutdown.cancel();
        (&mut self.running).await.unwrap().unwrap();
        let config = config(self.directory.path(), &self.database, arguments);
        (self.service, self.url, self.running) = run(config).await;
        self.client = client(&self.url, &ServerCheck::default());
    }

    /// Why a broker with these arguments does not start.
    pub async fn start_error(arguments: &[&str]) -> String {
        let (database, directory) = (testkit::database().await, tempfile::tempdir().unwrap());
        let (service, _ready) = Service::in_process();
        let config = config(directory.path(), &database, arguments);
        format!("{:#}", broker::run(config, service).await.unwrap_err())
    }

    /// Stores a secret of the first tenant, or of its project.
    pub async fn put_secret(&self, project: Option<&ProjectId>, name: &str, value: &str) {
        self.put_secret_for(project, name, value, &[]).await;
    }

    /// Sets a secret that only servers below these URLs may get.
    pub async fn put_secret_for(&self, project: Option<&ProjectId>, name: &str, value: &str, urls: &[&str]) {
        let request = v1::PutSecretRequest {
            tenant_id: self.tenants[0].to_string(),
            project_id: project.map(ToString::to_string).unwrap_or_default(),
            name: name.to_owned(),
            value: value.as_bytes().to_vec(),
            actor: "ann".to_owned(),
            actor_key: String::new(),
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        };
        self.client.clone().put_secret(request).await.unwrap();
    }

    /// Resolves an image for the project of the first tenant.
    pub async fn resolve(
        &self,
        reference: &str,
        credential: &str,
    ) -> Result<v1::ResolveImageResponse, Status> {
        let request = v1::ResolveImageRequest {
            tenant_id: self.tenants[0].to_string(),
            project_id: self.project.to_string(),
            reference: reference.to_owned(),
            credential: credential.to_owned(),
        };
        self.client.clone().resolve_image(request).await.map(tonic::Response::into_inner)
    }

    /// The code of a refusal, and its text.
    pub async fn refusal(&self, reference: &str, credential: &str) -> String {
        refusal(&self.resolve(reference, credential).await.unwrap_err())
    }

    /// Opens a layer for a tenant.
    pub fn open(
        &self,
        tenant: TenantId,
        reference: &str,
        layer: &str,
    ) -> impl Future<Output = Result<Streaming<v1::PullLayerResponse>, Status>> + Send + use<> {
        let request = v1::PullLayerRequest {
            tenant_id: tenant.to_string(),
            reference: reference.to_owned(),
            blob_digest: layer.to_owned(),
            ..v1::PullLayerRequest::default()
        };
        let mut client = self.client.clone();
        async move { client.pull_layer(request).await.map(tonic::Response::into_inner) }
    }

    /// Pulls a layer for the first tenant, and gives its bytes or the code and the text of its end.
    pub async fn pull(&self, reference: &str, layer: &str) -> Result<Vec<u8>, String> {
        let stream = self.open(self.tenants[0], reference, layer).await.map_err(|status| refusal(&status))?;
        read(stream).await
    }

    /// The lines of audit about images: action, outcome, bytes, and the name of the secret.
    pub fn audit(&self) -> Vec<serde_json::Value> {
        let text = self.log.text();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let is_ours = |line: &serde_json::Value| {
            line["target"] == "audit" && line["fields"].get("image.reference").is_some()
        };
        lines.filter(is_ours).map(|line| line["fields"].clone()).collect()
    }

    pub fn log(&self) -> String {
        self.log.text()
    }
}

pub async fn read(mut stream: Streaming<v1::PullLayerResponse>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    while let Some(piece) = stream.message().await.map_err(|status| refusal(&status))? {
        bytes.extend(piece.data);
    }
    Ok(bytes)
}

pub fn refusal(status: &Status) -> String {
    format!("{}: {}", rpc::status::code_of(status).unwrap_or_default(), status.message())
}
