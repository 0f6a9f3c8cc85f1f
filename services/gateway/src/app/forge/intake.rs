//! What a comment asks for becomes a prompt of the session of its issue or pull request, and an input of the job that shows the work. Each step may be repeated: whoever
//! processes the same delivery again finds what the one before it has made.

use super::deliveries::Processed;
use crate::{
    app::{
        gateway::Gateway,
        projects::manage::{self, CreatedProject, Match, PlacedSource},
        prompts::{accept, request::PromptRequest},
        sessions::{abort, create},
    },
    auth::principal::{Account, Principal},
    errors::error::Error,
};
use domain::{
    ids::{SessionId, TenantId},
    pull_request::{
        command::{COMMAND_LIST, Command},
        open_request::OpenRequest,
        permission::Permission,
        prompt::RequestPrompt,
        request::{Comment, Request, Verdict},
        subject::Subject,
        thread::{Thread, ThreadInput},
        visible::VisibleText,
    },
    session::{Class, Origin, Source},
    text::head,
};
use rpc::v1;
use store::tenant::{forge::ThreadKey, jobs::NewJob};

/// The kind of job that shows the work on an issue or a pull request.
pub(crate) const JOB_KIND: &str = "pull_request";
/// Bytes of the title of a session.
const TITLE_BYTES_MAX: usize = 180;

/// A comment with what it is about, as the forge told us.
#[derive(Debug, Clone)]
pub(crate) struct ForgeComment {
    pub(crate) installation: u64,
    pub(crate) repository: u64,
    /// "acme/app".
    pub(crate) repository_name: String,
    pub(crate) number: u64,
    pub(crate) is_pull_request: bool,
    pub(crate) title: String,
    /// The first text of the issue or the pull request.
    pub(crate) description: String,
    /// The lines on which it stands, for people and models; empty: none.
    pub(crate) lines: String,
    pub(crate) comment: Comment,
}

/// A request that its author may make.
struct Intake<'a> {
    gateway: &'a Gateway,
    principal: Principal,
    tenant: TenantId,
    event: &'a ForgeComment,
    request: Request,
}

/// Takes a comment.
///
/// # Errors
/// Those of the forge, of the broker and of the store: the delivery comes again.
pub(crate) async fn take(gateway: &Gateway, event: &ForgeComment) -> Result<Processed, Error> {
    let Some(request) = Request::find(&event.comment) else {
        return Ok(Processed::Ignored("the comment has no command of a person".to_owned()));
    };
    let state = &gateway.state;
    let id = i64::try_from(event.installation).unwrap_or_default();
    let Some(tenant) = state.store.find_installation_owner(id).await? else {
        let hint = format!(
            "no tenant has the installation {id}; `flotilla github bind {id} --tenant TENANT` gives it to one"
        );
        return Ok(Processed::Dead(hint));
    };
    let author = &event.comment.author;
    let asked =
        v1::GetForgePermissionRequest { repository: Some(place(tenant, event)), login: author.login.clone() };
    let found = state.forge.get_permission(asked).await?;
    let verdict = request.judge(author, Permission::parse(&found.permission));
    let account = Account::of(&state.store.get_tenant(tenant).await?);
    let principal = Principal::of_forge(format!("github:{}", author.login), account);
    let intake = Intake { gateway, principal, tenant, event, request };
    match verdict {
        Verdict::Refused(reason) => intake.refuse(&reason).await,
        Verdict::Accepted => intake.perform().await,
    }
}

fn place(tenant: TenantId, event: &ForgeComment) -> v1::ForgeRepository {
    v1::ForgeRepository {
        tenant_id: tenant.to_string(),
        installation_id: event.installation,
        repository_id: event.repository,
        name: event.repository_name.clone(),
    }
}

impl Intake<'_> {
    async fn perform(&self) -> Result<Processed, Error> {
        match self.request.command.clone() {
            Command::Work(task) => self.work(&task).await,
            Command::Status => self.tell_state().await,
            Command::Stop => self.stop().await,
            Command::Help => {
                self.answer(&help()).await.map(|()| Processed::Done("told the commands".to_owned()))
            }
        }
    }

    /// Gives a task to the session of the thread, which begins now if there is none.
    async fn work(&self, task: &str) -> Result<Processed, Error> {
        let found = self.find_session().await?;
        let asked = v1::GetForgeRepositoryRequest {
            repository: Some(place(self.tenant, self.event)),
            pull_request: if self.event.is_pull_request && found.is_none() { self.event.number } else { 0 },
        };
        let repository = self.gateway.state.forge.get_repository(asked).await?;
        let session = match &found {
            Some(session) => session.clone(),
            None => match self.begin(&repository).await? {
                Ok(session) => session,
                Err(reason) => return self.refuse(&reason).await,
            },
        };
        let subject = self.subject(&repository);
        let is_first = found.is_none();
        let description =
            if is_first { VisibleText::of(&self.event.description).text } else { String::new() };
        let author = &self.event.comment.author.login;
        let task = if self.event.lines.is_empty() {
            task.to_owned()
        } else {
            format!("{task}\n\n{}", self.event.lines)
        };
        let prompt = RequestPrompt { subject: &subject, author, task: &task, description: &description };
        let request = PromptRequest {
            text: prompt.text(),
            idempotency_key: format!("{:?}:{}", self.event.comment.id.kind, self.event.comment.id.id),
            ..PromptRequest::default()
        };
        match accept::accept(self.gateway, &self.principal, &session, request).await {
            // The issue has another text by now, and the session has this comment already.
            Ok(_) | Err(Error::IdempotencyConflict) => {}
            Err(error) => return Err(error),
        }
        let input =
            ThreadInput::Requested { request: OpenRequest::new(self.event.comment.id, author, &task) };
        self.send(subject, &session, &input).await?;
        Ok(Processed::Done(format!("a prompt of the session {session}")))
    }

    async fn tell_state(&self) -> Result<Processed, Error> {
        let Some(session) = self.find_session().await? else {
            self.answer("There is no work on this. `/flotilla <what to do>` begins some.").await?;
            return Ok(Processed::Done("told that there is no work".to_owned()));
        };
        let asked = v1::GetForgeRepositoryRequest {
            repository: Some(place(self.tenant, self.event)),
            pull_request: 0,
        };
        let repository = self.gateway.state.forge.get_repository(asked).await?;
        let author = &self.event.comment.author.login;
        let input =
            ThreadInput::StatusAsked { request: OpenRequest::new(self.event.comment.id, author, "status") };
        self.send(self.subject(&repository), &session, &input).await?;
        Ok(Processed::Done(format!("shows the state of the session {session} again")))
    }

    async fn stop(&self) -> Result<Processed, Error> {
        if let Some(session) = self.find_session().await? {
            abort::abort(self.gateway, &self.principal, &session).await?;
        }
        self.tell_state().await
    }

    /// Finds the session of the thread, unless somebody has deleted it.
    async fn find_session(&self) -> Result<Option<SessionId>, Error> {
        let store = &self.gateway.state.store;
        let Some(session) = store.find_thread(self.tenant, self.key()).await? else { return Ok(None) };
        match store.get_session(self.tenant, &session).await.map_err(Error::from) {
            Ok(_) => Ok(Some(session)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Begins the session of the thread: at the head of the pull request, or at the default branch. `Err`: why there is none.
    async fn begin(
        &self,
        repository: &v1::GetForgeRepositoryResponse,
    ) -> Result<Result<SessionId, String>, Error> {
        let revision = match &repository.pull_request {
            // The code of a fork is that of a stranger, and would run with the rights of this repository.
            Some(pull) if pull.head_repository_id != self.event.repository => {
                return Ok(Err("The branch of this pull request is in another repository, and work on forks is not possible yet.".to_owned()));
            }
            Some(pull) => Some(pull.head_branch.clone()),
            None => None,
        };
        let (gateway, principal) = (self.gateway, &self.principal);
        let source = Source { origin: Origin::GitUrl(repository.clone_url.clone()), ..Source::default() };
        let placed = PlacedSource { source: source.clone(), ..PlacedSource::default() };
        let CreatedProject { project, .. } =
            Box::pin(manage::create(gateway, principal, &repository.name, &placed, Match::Place)).await?;
        let (number, title) = (self.event.number, head(&self.event.title, TITLE_BYTES_MAX));
        let title = format!("#{number}: {title}");
        let request = create::SessionRequest {
            // A thread whose session was deleted begins another one with the next comment.
            idempotency_key: format!(
                "github:{}:{number}:{}",
                self.event.repository, self.event.comment.id.id
            ),
            title: title.replace('\0', ""),
            source: Source { revision, ..source },
            class: Class::Pr,
            ..create::SessionRequest::of(project.id)
        };
        let session = Box::pin(create::create(gateway, principal, request)).await?.info.id;
        gateway.state.store.put_thread(self.tenant, self.key(), &session).await?;
        Ok(Ok(session))
    }

    fn key(&self) -> ThreadKey {
        ThreadKey { repository: self.event.repository, number: self.event.number }
    }

    fn subject(&self, repository: &v1::GetForgeRepositoryResponse) -> Subject {
        let event = self.event;
        let base_branch = match &repository.pull_request {
            Some(pull) => pull.head_branch.clone(),
            None => repository.default_branch.clone(),
        };
        Subject {
            installation_id: event.installation,
            repository_id: event.repository,
            repository: repository.name.clone(),
            number: event.number,
            is_pull_request: event.is_pull_request,
            title: VisibleText::of(&event.title).text,
            base_branch,
        }
    }

    /// Tells the job of the session what happened. The job exists from the first input on.
    async fn send(&self, subject: Subject, session: &SessionId, input: &ThreadInput) -> Result<(), Error> {
        let json = |error: serde_json::Error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a thread cannot be written as JSON");
            Error::StoreFailed
        };
        let state = serde_json::to_string(&Thread::new(subject)).map_err(json)?;
        let body = serde_json::to_string(input).map_err(json)?;
        let dedupe = format!("{:?}:{}", self.event.comment.id.kind, self.event.comment.id.id);
        let job = NewJob { id: session.as_str(), kind: JOB_KIND, state: &state };
        Ok(self.gateway.state.store.send_to_job(self.tenant, job, &dedupe, &body).await?)
    }

    /// Refuses in one line.
    async fn refuse(&self, reason: &str) -> Result<Processed, Error> {
        match self.answer(reason).await {
            Ok(()) => Ok(Processed::Done(format!("refused: {reason}"))),
            // A locked conversation, or one that is gone: there is no place to say it.
            Err(Error::Forge(refusal)) if refusal.retry_after.is_none() => {
                Ok(Processed::Done(format!("refused, and could not say so: {reason}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Answers a comment once.
    async fn answer(&self, text: &str) -> Result<(), Error> {
        let mark =
            format!("<!-- flotilla:answer:{:?}:{} -->", self.event.comment.id.kind, self.event.comment.id.id);
        let request = v1::PutForgeCommentRequest {
            repository: Some(place(self.tenant, self.event)),
            number: self.event.number,
            comment_id: 0,
            text: format!("{mark}\n{text}"),
            mark,
        };
        self.gateway.state.forge.put_comment(request).await.map(drop)
    }
}

fn help() -> String {
    let line = |(command, meaning): &(&str, &str)| format!("| `{command}` | {meaning} |");
    let lines: Vec<_> = COMMAND_LIST.iter().map(line).collect();
    format!("| command | what it does |\n|---|---|\n{}", lines.join("\n"))
}
