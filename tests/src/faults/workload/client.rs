//! A well-behaved client: it repeats an unanswered call with the same key at another gateway until it receives an answer.
//! It records wrong answers as surprises.

use crate::faults::history::{Surprise, now_us};
use rpc::{
    client::Bearer,
    v1::{
        self, event_service_client::EventServiceClient, permission_service_client::PermissionServiceClient,
        prompt_service_client::PromptServiceClient, question_service_client::QuestionServiceClient,
        session_service_client::SessionServiceClient,
    },
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tonic::{Code, Response, Status, service::interceptor::InterceptedService, transport::Channel};

/// Time limit for the answer to one call.
const ANSWER: Duration = Duration::from_secs(6);
/// How long a call is repeated: longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

type Authorized = InterceptedService<Channel, Bearer>;

/// The client of one tenant. Clones share its record.
#[derive(Clone)]
pub struct Client {
    pub tenant: usize,
    project_id: String,
    key: String,
    gateways: Arc<Vec<Channel>>,
    surprises: Arc<Mutex<Vec<Surprise>>>,
}

impl Client {
    /// Creates a client of the tenant of `api` that uses these gateways.
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

    pub fn record_surprise(&self, subject: &str, description: String) {
        let surprise = Surprise { at_us: now_us(), subject: subject.to_owned(), description };
        self.surprises.lock().unwrap_or_else(PoisonError::into_inner).push(surprise);
    }

    fn at(&self, gateway: usize) -> Authorized {
        let channel = self.gateways[gateway % self.gateways.len()].clone();
        InterceptedService::new(channel, Bearer::new(&self.key).expect("a key"))
    }

    /// Returns the client of `EventService` at one gateway.
    pub fn events(&self, gateway: usize) -> EventServiceClient<Authorized> {
        EventServiceClient::new(self.at(gateway)).max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
    }

    /// Creates a session, once for each key. A person must allow the calls of the tools in `asks`.
    pub async fn create_session(&self, key: &str, asks: &[&str]) -> Option<String> {
        let rule = |tool: &&str| v1::PermissionRule {
            permission: (*tool).to_owned(),
            pattern: String::new(),
            verdict: v1::PermissionVerdict::Ask.into(),
        };
        let request = v1::CreateSessionRequest {
            project_id: self.project_id.clone(),
            title: key.to_owned(),
            idempotency_key: key.to_owned(),
            permission_rules: asks.iter().map(rule).collect(),
            ..Default::default()
        };
        let created = self
            .repeat(key, 0, |authorized| {
                let request = request.clone();
                async move { SessionServiceClient::new(authorized).create_session(request).await }
            })
            .await?;
        Some(created.session?.id)
    }

    /// Sends a prompt until a gateway accepts it, first to `gateway`, and returns the id of its message.
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

    /// Sends a prompt and disconnects before the answer can arrive.
    pub async fn prompt_and_leave(&self, session_id: &str, key: &str, text: &str, within: Duration) {
        let request = v1::AcceptPromptRequest {
            session_id: session_id.to_owned(),
            text: text.to_owned(),
            idempotency_key: key.to_owned(),
            ..Default::default()
        };
        let mut client = PromptServiceClient::new(self.at(0));
        // The result does not matter: the caller sends the prompt again.
        drop(tokio::time::timeout(within, client.accept_prompt(request)).await);
    }

    /// Aborts a turn and returns whether one was active.
    pub async fn abort(&self, session_id: &str) -> Option<bool> {
        let request = v1::AbortSessionRequest { session_id: session_id.to_owned() };
        let answer = self.repeat(session_id, 0, |authorized| {
            let request = request.clone();
            async move { SessionServiceClient::new(authorized).abort_session(request).await }
        });
        Some(answer.await?.was_active)
    }

    /// Lists the open requests of this tenant's agents: `(session, request)`. Empty if no gateway answers.
    pub async fn requests(&self, gateway: usize) -> Vec<(String, String)> {
        let (all, every) = (v1::ListPermissionsRequest::default(), v1::ListQuestionsRequest::default());
        let mut permissions = PermissionServiceClient::new(self.at(gateway));
        let mut questions = QuestionServiceClient::new(self.at(gateway));
        let answers = tokio::join!(
            tokio::time::timeout(ANSWER, permissions.list_permissions(all)),
            tokio::time::timeout(ANSWER, questions.list_questions(every)),
        );
        let mut requests = vec![];
        if let Ok(Ok(answer)) = answers.0 {
            let permissions = answer.into_inner().permissions.into_iter();
            requests.extend(permissions.map(|permission| (permission.session_id, permission.id)));
        }
        if let Ok(Ok(answer)) = answers.1 {
            let questions = answer.into_inner().questions.into_iter();
            requests.extend(questions.map(|question| (question.session_id, question.id)));
        }
        requests
    }

    /// Answers a permission and returns whether this was the first answer.
    pub async fn reply(&self, id: &str, answer: v1::PermissionAnswer) -> bool {
        let request = v1::ReplyPermissionRequest {
            permission_id: id.to_owned(),
            answer: answer.into(),
            // A refusal without a message would end the turn.
            message: "go on without it".to_owned(),
            ..Default::default()
        };
        let result = self.repeat_until_answered(0, |authorized| {
            let request = request.clone();
            async move { PermissionServiceClient::new(authorized).reply_permission(request).await }
        });
        self.was_first(id, result.await)
    }

    /// Answers a question and returns whether this was the first answer.
    pub async fn choose(&self, id: &str, label: &str) -> bool {
        let answers = vec![v1::QuestionAnswer { labels: vec![label.to_owned()] }];
        let request = v1::ReplyQuestionRequest { question_id: id.to_owned(), answers };
        let result = self.repeat_until_answered(1, |authorized| {
            let request = request.clone();
            async move { QuestionServiceClient::new(authorized).reply_question(request).await }
        });
        self.was_first(id, result.await)
    }

    fn was_first<T>(&self, id: &str, result: Option<Result<T, Status>>) -> bool {
        match result {
            Some(Ok(_)) => true,
            Some(Err(status)) => {
                // The deadline or an abort came first, or the confirmation of an earlier attempt was lost.
                if rpc::status::code_of(&status).as_deref() != Some("already_resolved") {
                    self.record_surprise(id, format!("an answer was refused: {}", sentence(&status)));
                }
                false
            }
            None => false,
        }
    }

    /// Tries to subscribe to another tenant's session. The answer must not reveal that it exists.
    pub async fn spy(&self, session_id: &str) {
        let request = v1::SubscribeRequest { session_id: session_id.to_owned(), ..Default::default() };
        let mut events = self.events(self.tenant);
        let outcome = match tokio::time::timeout(ANSWER, events.subscribe(request)).await {
            Ok(Ok(stream)) => match tokio::time::timeout(ANSWER, stream.into_inner().message()).await {
                Ok(Ok(Some(_))) => "an event".to_owned(),
                Ok(Err(status)) => return self.check_refusal(session_id, &status),
                Ok(Ok(None)) | Err(_) => return,
            },
            Ok(Err(status)) => return self.check_refusal(session_id, &status),
            Err(_) => return,
        };
        self.record_surprise(session_id, format!("the foreign tenant {} received {outcome}", self.tenant));
    }

    fn check_refusal(&self, session_id: &str, status: &Status) {
        if !is_transient(status) && rpc::status::code_of(status).as_deref() != Some("session_not_found") {
            let what = format!("the foreign tenant {} received {}", self.tenant, sentence(status));
            self.record_surprise(session_id, what);
        }
    }

    async fn repeat<T, F>(&self, subject: &str, first: usize, call: impl FnMut(Authorized) -> F) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        match self.repeat_until_answered(first, call).await {
            Some(Ok(answer)) => Some(answer),
            Some(Err(status)) => {
                self.record_surprise(subject, format!("a call was refused: {}", sentence(&status)));
                None
            }
            None => {
                self.record_surprise(
                    subject,
                    format!("a call was not answered within {} s", PATIENCE.as_secs()),
                );
                None
            }
        }
    }

    /// Repeats a call until a gateway answers or refuses it; `None` if that does not happen in time.
    async fn repeat_until_answered<T, F>(
        &self,
        first: usize,
        mut call: impl FnMut(Authorized) -> F,
    ) -> Option<Result<T, Status>>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + PATIENCE;
        let mut gateway = first;
        while Instant::now() < until {
            match tokio::time::timeout(ANSWER, call(self.at(gateway))).await {
                Ok(Ok(answer)) => return Some(Ok(answer.into_inner())),
                Ok(Err(status)) if !is_transient(&status) => return Some(Err(status)),
                Ok(Err(_)) | Err(_) => {}
            }
            gateway += 1;
            tokio::time::sleep(PAUSE).await;
        }
        None
    }
}

/// Returns whether a call may be repeated after this status: the connection or a server of the gateway failed.
pub fn is_transient(status: &Status) -> bool {
    rpc::status::code_of(status).is_none() || status.code() == Code::Unavailable
}

pub fn sentence(status: &Status) -> String {
    let code = rpc::status::code_of(status).unwrap_or_default();
    format!("{:?} {code}: {}", status.code(), status.message())
}
