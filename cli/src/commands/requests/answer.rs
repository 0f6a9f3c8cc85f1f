//! `flotilla answer`: lists the requests of sessions to people, and answers them.

use crate::{
    client::{Client, Paged, all_pages, call, get_session},
    exit::{Exit, coded},
    lookup::{self, Fit},
    terminal::{
        output::{ListText, Output},
        paint::{Paint, harmless, one_line},
        show,
    },
};
use anyhow::{Result, bail};
use rpc::v1::{
    ErrorCode, ListPermissionsRequest, ListQuestionsRequest, Permission, PermissionAnswer, PermissionScope,
    Question, QuestionAnswer, ReplyPermissionRequest, ReplyQuestionRequest,
};
use serde_json::{Value, json};

/// Characters of a request's text.
const ASKED_CHARS: usize = 90;
/// Characters of a reason. `--json` shows all of it.
const REASON_CHARS: usize = 200;
/// Lines of a change in a list of requests. The rest is left out, and the list says so.
const DIFF_LINES_MAX: usize = 40;

/// `flotilla answer`.
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// A permission, a question, or the session that asks. Without an answer: list its open requests, including those of
    /// its subtasks. Without anything: list all open requests.
    id: Option<String>,
    /// For a permission: `once`, `always` or `reject`. For a question: a label or a text for each item, in order; separate
    /// several labels of one item by commas.
    #[arg(requires = "id", conflicts_with = "reject")]
    answers: Vec<String>,
    /// Refuse the tool call, or leave the question unanswered; the turn continues without it.
    #[arg(long, requires = "id")]
    reject: bool,
    /// With `always`: the scope of the answer. `flotilla approvals` lists answers that reach beyond a session.
    #[arg(long, value_enum, default_value_t = Scope::Session)]
    scope: Scope,
    /// With a refused permission: a message for the model; the turn then continues.
    #[arg(long, default_value = "")]
    message: String,
}

/// The scope of an answer `always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Scope {
    Session,
    Project,
    Tenant,
}

impl Scope {
    fn to_wire(self) -> PermissionScope {
        match self {
            Self::Session => PermissionScope::Session,
            Self::Project => PermissionScope::Project,
            Self::Tenant => PermissionScope::Tenant,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Open {
    Permission(Permission),
    Question(Question),
}

impl Open {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Permission(permission) => &permission.id,
            Self::Question(question) => &question.id,
        }
    }

    pub(crate) fn session_id(&self) -> &str {
        match self {
            Self::Permission(permission) => &permission.session_id,
            Self::Question(question) => &question.session_id,
        }
    }

    pub(crate) fn words(&self) -> String {
        match self {
            Self::Permission(permission) => may_it(&permission.permission, &permission.patterns.join(" ")),
            Self::Question(question) => {
                let items = question.items.iter().map(|item| {
                    let labels: Vec<_> = item.options.iter().map(|option| option.label.as_str()).collect();
                    let labels =
                        if labels.is_empty() { String::new() } else { format!(" [{}]", labels.join(" | ")) };
                    format!("{}{labels}", item.question)
                });
                items.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// Returns the id and the request, in one line.
    pub(crate) fn line(&self) -> String {
        format!("{}  {}", self.id(), one_line(&self.words(), ASKED_CHARS))
    }

    /// Returns why the agent asks and the change of files that it asks for, indented; empty if the request has neither. The terminal obeys nothing that a
    /// model wrote.
    pub(super) fn details(&self, paint: Paint) -> String {
        let Self::Permission(permission) = self else { return String::new() };
        let mut text = String::new();
        if !permission.reason.is_empty() {
            text.push_str(&format!("    reason: {}\n", one_line(&permission.reason, REASON_CHARS)));
        }
        let mut lines = permission.diff.lines();
        text.extend(
            lines.by_ref().take(DIFF_LINES_MAX).map(|line| format!("    {}\n", show::diff_line(line, paint))),
        );
        if permission.is_diff_cut || lines.next().is_some() {
            text.push_str("    … the change is longer; `--json` shows up to 16 KiB of it\n");
        }
        text
    }

    /// Returns the command that answers it. The command contains nothing that a model wrote, because people copy it
    /// into a shell.
    pub(crate) fn command(&self) -> String {
        match self {
            Self::Permission(permission) => command(&permission.id, "once"),
            Self::Question(question) => {
                command(&question.id, &vec!["\"…\""; question.items.len().max(1)].join(" "))
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Permission(permission) => json!({
                "type": "permission", "id": permission.id, "session_id": permission.session_id, "permission": permission.permission,
                "patterns": permission.patterns, "always": permission.always, "asked_at_ms": permission.asked_at_ms,
                "expires_at_ms": permission.expires_at_ms, "diff": permission.diff, "is_diff_cut": permission.is_diff_cut,
                "reason": permission.reason,
            }),
            Self::Question(question) => json!({
                "type": "question", "id": question.id, "session_id": question.session_id, "asked_at_ms": question.asked_at_ms,
                "expires_at_ms": question.expires_at_ms,
                "questions": question.items.iter().map(|item| json!({
                    "header": item.header, "question": item.question, "multiple": item.multiple,
                    "options": item.options.iter().map(|option| json!({
                        "label": option.label, "description": option.description,
                    })).collect::<Vec<_>>(),
                })).collect::<Vec<_>>(),
            }),
        }
    }
}

/// Returns the request of a permission in one line, including everything after the first line of a command.
pub(crate) fn may_it(permission: &str, patterns: &str) -> String {
    format!("allow {permission} {patterns}").replace('\n', "⏎ ")
}

/// Returns the command that answers the request `id`.
pub(crate) fn command(id: &str, answer: &str) -> String {
    format!("flotilla answer {} {answer}", one_line(id, ASKED_CHARS))
}

/// Lists all open requests of one session with its subtasks or, with an empty id, of all sessions; permissions first.
pub(crate) async fn list(client: &Client, session_id: &str) -> Result<Vec<Open>> {
    let permissions = all_pages(async |page| {
        let (session_id, page) = (session_id.to_owned(), Some(page));
        let request = ListPermissionsRequest { session_id, page, with_subtasks: true };
        let list = async || client.permissions().list_permissions(request.clone()).await;
        let answer = call("list the open requests", list).await?;
        Ok(Paged { entries: answer.permissions, next_cursor: answer.next_cursor })
    });
    let questions = all_pages(async |page| {
        let (session_id, page) = (session_id.to_owned(), Some(page));
        let request = ListQuestionsRequest { session_id, page, with_subtasks: true };
        let list = async || client.questions().list_questions(request.clone()).await;
        let answer = call("list the open requests", list).await?;
        Ok(Paged { entries: answer.questions, next_cursor: answer.next_cursor })
    });
    let permissions = permissions.await?.into_iter().map(Open::Permission);
    let questions = questions.await?.into_iter().map(Open::Question);
    Ok(permissions.chain(questions).collect())
}

/// Lists requests, or answers one.
pub(crate) async fn run(client: &Client, output: &Output, arguments: AnswerArgs) -> Result<Exit> {
    let Subject { id, open } = match &arguments.id {
        Some(named) => resolve(client, output, named).await?,
        None => Subject::of(String::new()),
    };
    let id = id.as_str();
    let is_session = id.is_empty() || id.starts_with("ses_");
    let mut open = match open {
        Some(open) => open,
        None => list(client, if is_session { id } else { "" }).await?,
    };
    if !is_session {
        open.retain(|open| open.id() == id);
    } else if open.is_empty() && !id.is_empty() {
        // The list of a session that does not exist is empty too.
        get_session(client, id).await?;
    }
    if arguments.answers.is_empty() && !arguments.reject {
        if !is_session && open.is_empty() {
            return Err(not_open(&unknown(id)?));
        }
        print(output, &open)?;
        return Ok(Exit::Done);
    }
    if !is_session && open.is_empty() {
        // The request is closed or unknown. The server says which, and who closed it.
        open.push(unknown(id)?);
    }
    if is_session && open.iter().all(|open| open.session_id() != id) {
        print(output, &open)?;
        let below = if open.is_empty() { "" } else { " of its own; answer its subtasks by the ids above" };
        bail!("session {id} has no open request{below}");
    }
    // An answer for a session must not reach its subtasks, whose requests are different.
    open.retain(|open| !is_session || open.session_id() == id);
    let has = |kind: fn(&Open) -> bool| open.iter().any(kind);
    let questions = open.iter().filter(|open| matches!(open, Open::Question(_))).count();
    if questions > 1 || (questions == 1 && has(|open| matches!(open, Open::Permission(_)))) {
        print(output, &open)?;
        bail!("session {id} has several open requests; answer each by its own id");
    }
    let mut exit = Exit::Done;
    for open in &open {
        let late = reply(client, open, &decision(open, &arguments)?).await?;
        let text = match &late {
            None => format!("answered: {}", one_line(&open.words(), ASKED_CHARS)),
            Some(message) => format!("too late: {}", harmless(message)),
        };
        output.result(&text, &answer_json(open, late.as_deref()))?;
        if late.is_some() {
            exit = Exit::Usage;
        }
    }
    Ok(exit)
}

/// The request or the session that a command is about.
struct Subject {
    id: String,
    /// All open requests, if a request was looked up among them.
    open: Option<Vec<Open>>,
}

impl Subject {
    fn of(id: String) -> Self {
        Self { id, open: None }
    }
}

/// The request or the session that a person names.
async fn resolve(client: &Client, output: &Output, named: &str) -> Result<Subject> {
    // A request that is closed has an id too.
    if lookup::is_whole(named) {
        return Ok(Subject::of(named.to_owned()));
    }
    if lookup::means_session(named) {
        return Ok(Subject::of(lookup::session(client, output, named).await?));
    }
    let open = list(client, "").await?;
    let same = open.iter().find(|open| open.id() == named);
    let id = match same.map_or_else(|| lookup::fit(&open, Open::id, named), Fit::One) {
        Fit::One(request) => request.id().to_owned(),
        Fit::Several(_) => {
            print(output, &open)?;
            return Err(coded(
                "request_ambiguous",
                format!("several open requests fit {named:?}; give more of the id"),
            ));
        }
        Fit::Nothing if named.starts_with("per_") || named.starts_with("que_") => named.to_owned(),
        Fit::Nothing => return Ok(Subject::of(lookup::session(client, output, named).await?)),
    };
    Ok(Subject { id, open: Some(open) })
}

/// An answer as `--json` shows it. `too_late`: why it had no effect.
fn answer_json(open: &Open, too_late: Option<&str>) -> Value {
    json!({"type": "answer", "id": open.id(), "is_late": too_late.is_some(), "message": too_late})
}

fn print(output: &Output, open: &[Open]) -> Result<()> {
    let text = |open: &Open, paint: Paint| {
        format!(
            "{}\n{}  {}  session {}\n",
            open.line(),
            open.details(paint),
            open.command(),
            open.session_id()
        )
    };
    let table = |open: &[Open], paint: Paint| open.iter().map(|open| text(open, paint)).collect();
    output.list(open, &ListText { to_json: Open::to_json, table: &table, none: "no open requests" })
}

/// A request that is not open; its id tells the kind.
fn unknown(id: &str) -> Result<Open> {
    let id = id.to_owned();
    match id.split_once('_') {
        Some(("per", _)) => Ok(Open::Permission(Permission { id, ..Permission::default() })),
        Some(("que", _)) => Ok(Open::Question(Question { id, ..Question::default() })),
        _ => Err(coded(
            ErrorCode::SessionNotFound,
            format!("{id} is not a permission (per_…), question (que_…) or session (ses_…)"),
        )),
    }
}

/// The error of a list of one request that is not open.
fn not_open(request: &Open) -> anyhow::Error {
    let code = match request {
        Open::Permission(_) => ErrorCode::PermissionNotFound,
        Open::Question(_) => ErrorCode::QuestionNotFound,
    };
    coded(
        code,
        format!(
            "{} is not open: it has an answer, or does not exist; `flotilla answer` lists what is open",
            request.id()
        ),
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Permission {
        answer: PermissionAnswer,
        /// With a refusal: what the model is told. Without it, the turn ends.
        message: String,
        scope: PermissionScope,
    },
    /// An answer for each item; empty: the question stays without one.
    Question(Vec<QuestionAnswer>),
}

/// Sends an answer. Returns who was faster, if the request was already closed.
///
/// # Errors
/// The refusal of the gateway.
pub(super) async fn reply(client: &Client, open: &Open, decision: &Decision) -> Result<Option<String>> {
    let sent = match decision {
        Decision::Permission { answer, message, scope } => {
            let request = ReplyPermissionRequest {
                permission_id: open.id().to_owned(),
                answer: (*answer).into(),
                message: message.clone(),
                scope: (*scope).into(),
            };
            let reply = async || client.permissions().reply_permission(request.clone()).await;
            call("answer", reply).await.map(drop)
        }
        Decision::Question(answers) => {
            let request =
                ReplyQuestionRequest { question_id: open.id().to_owned(), answers: answers.clone() };
            let reply = async || client.questions().reply_question(request.clone()).await;
            call("answer", reply).await.map(drop)
        }
    };
    let Err(error) = sent else { return Ok(None) };
    let status = error.downcast_ref::<tonic::Status>();
    match status.filter(|status| rpc::status::code(status) == Some(ErrorCode::AlreadyResolved)) {
        Some(status) => Ok(Some(status.message().to_owned())),
        None => Err(error),
    }
}

/// The answer that the command line has for a request.
fn decision(open: &Open, arguments: &AnswerArgs) -> Result<Decision> {
    Ok(match open {
        Open::Permission(_) => Decision::Permission {
            answer: verdict(arguments)?,
            message: arguments.message.clone(),
            scope: arguments.scope.to_wire(),
        },
        Open::Question(_) if arguments.reject => Decision::Question(vec![]),
        Open::Question(question) => Decision::Question(labels(question, &arguments.answers)?),
    })
}

fn verdict(arguments: &AnswerArgs) -> Result<PermissionAnswer> {
    let words: Vec<_> = arguments.answers.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["reject"] => Ok(PermissionAnswer::Reject),
        ["once"] => Ok(PermissionAnswer::Once),
        ["always"] => Ok(PermissionAnswer::Always),
        _ => bail!("answer a permission with once, always or reject"),
    }
}

/// Reads one answer for each item of a question.
fn labels(question: &Question, answers: &[String]) -> Result<Vec<QuestionAnswer>> {
    // The items of a closed question are unknown here: the server refuses the answer.
    if !question.items.is_empty() && question.items.len() != answers.len() {
        bail!(
            "the question has {} items; give one answer for each: {}",
            question.items.len(),
            Open::Question(question.clone()).line()
        );
    }
    let labels = answers.iter().enumerate().map(|(index, answer)| {
        let several = question.items.get(index).is_some_and(|item| item.multiple);
        let labels = if several {
            answer.split(',').map(|label| label.trim().to_owned()).collect()
        } else {
            vec![answer.clone()]
        };
        QuestionAnswer { labels }
    });
    Ok(labels.collect())
}

#[cfg(test)]
mod tests;
