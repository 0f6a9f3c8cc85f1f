//! A client as good ones are: it repeats a call that was not answered, with the same key and at another gateway, until
//! it is answered. What it must never be told is kept as a surprise.

use super::{history::Surprise, history::now_us};
use rpc::{
    client::Bearer,
    v1::{
        self, event_service_client::EventServiceClient, prompt_service_client::PromptServiceClient,
        session_service_client::SessionServiceClient,
    },
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tonic::{Code, Response, Status, service::interceptor::InterceptedService, transport::Channel};

/// How long one call may take before it counts as lost.
const ANSWER: Duration = Duration::from_secs(6);
/// How long a call is repeated: longer than any fault.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

type Authorized = InterceptedService<Channel, Bearer>;

/// One tenant's client. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    /// The tenant's number.
    pub tenant: usize,
    project_id: String,
    key: String,
    gateways: Arc<Vec<Channel>>,
    surprises: Arc<Mutex<Vec<Surprise>>>,
}

impl Client {
    /// A client of the tenant that `api` belongs to, which knows these gateways.
    pub fn new(
        tenant: usize,
        api: &crate::api::Api,
        gateway_urls: &[String],
        surprises: Arc<Mutex<Vec<Surprise>>>,
    ) -> anyhow::Result<Self> {
        let gateways =
            gateway_urls.iter().map(|url| chassis::grpc::channel(url)).collect::<Result<_, _>>()?;
        Ok(Self {
            tenant,
            project_id: api.project_id.clone(),
            key: api.key.clone(),
            gateways: Arc::new(gateways),
            surprises,
        })
    }

    /// Keeps something that must not happen.
    pub fn surprised(&self, whose: &str, what: String) {
        let surprise = Surprise { at_us: now_us(), whose: whose.to_owned(), what };
        self.surprises.lock().unwrap_or_else(PoisonError::into_inner).push(surprise);
    }

    fn at(&self, gateway: usize) -> Authorized {
        let channel = self.gateways[gateway % self.gateways.len()].clone();
        InterceptedService::new(channel, Bearer::new(&self.key).expect("a key"))
    }

    /// Client of `EventService` at one gateway.
    pub fn events(&self, gateway: usize) -> EventServiceClient<Authorized> {
        EventServiceClient::new(self.at(gateway)).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    /// Makes a session; the key makes it the only one.
    pub async fn create_session(&self, key: &str) -> Option<String> {
        let request = v1::CreateSessionRequest {
            project_id: self.project_id.clone(),
            title: key.to_owned(),
            idempotency_key: key.to_owned(),
            ..Default::default()
        };
        let made = self
            .repeat(key, 0, |authorized| {
                let request = request.clone();
                async move { SessionServiceClient::new(authorized).create_session(request).await }
            })
            .await?;
        Some(made.session?.id)
    }

    /// Sends a prompt until it is accepted, at first to `gateway`, and gives its message.
    pub async fn prompt(&self, session_id: &str, key: &str, text: &str, gateway: usize) -> Option<String> {
        let request = v1::AcceptPromptRequest {
            session_id: session_id.to_owned(),
            text: text.to_owned(),
            idempotency_key: key.to_owned(),
            ..Default::default()
        };
        let accepted = self.repeat(session_id, gateway, |authorized| {
            let request = request.clone();
            async move { PromptServiceClient::new(authorized).accept_prompt(request).await }
        });
        Some(accepted.await?.message_id)
    }

    /// Sends a prompt and leaves before the answer can be there.
    pub async fn prompt_and_leave(&self, session_id: &str, key: &str, text: &str, within: Duration) {
        let request = v1::AcceptPromptRequest {
            session_id: session_id.to_owned(),
            text: text.to_owned(),
            idempotency_key: key.to_owned(),
            ..Default::default()
        };
        let mut client = PromptServiceClient::new(self.at(0));
        // Whatever came of it: it is sent again.
        drop(tokio::time::timeout(within, client.accept_prompt(request)).await);
    }

    /// Stops a turn; gives whether there was one.
    pub async fn abort(&self, session_id: &str) -> Option<bool> {
        let request = v1::AbortSessionRequest { session_id: session_id.to_owned() };
        let answer = self.repeat(session_id, 0, |authorized| {
            let request = request.clone();
            async move { SessionServiceClient::new(authorized).abort_session(request).await }
        });
        Some(answer.await?.was_active)
    }

    async fn repeat<T, F>(
        &self,
        whose: &str,
        first: usize,
        mut call: impl FnMut(Authorized) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + PATIENCE;
        let mut gateway = first;
        while Instant::now() < until {
            match tokio::time::timeout(ANSWER, call(self.at(gateway))).await {
                Ok(Ok(answer)) => return Some(answer.into_inner()),
                Ok(Err(status)) if !may_be_repeated(&status) => {
                    self.surprised(whose, format!("a call was refused: {}", sentence(&status)));
                    return None;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            gateway += 1;
            tokio::time::sleep(PAUSE).await;
        }
        self.surprised(whose, format!("a call was not answered within {} s", PATIENCE.as_secs()));
        None
    }
}

/// Whether a status says "not now": of the connection, or of a service that misses another.
pub fn may_be_repeated(status: &Status) -> bool {
    rpc::status::code_of(status).is_none() || status.code() == Code::Unavailable
}

/// A status in words.
pub fn sentence(status: &Status) -> String {
    let code = rpc::status::code_of(status).unwrap_or_default();
    format!("{:?} {code}: {}", status.code(), status.message())
}
