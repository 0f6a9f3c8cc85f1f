//! Parents, their tool calls and the children that answer them, and the requests of such calls to people.

use crate::world::{Running, World};
use domain::{
    conversation::{
        message::Message,
        part::{Body, Part, Ran, Span, Tool, ToolState},
        request::{Id, Question, Request, RequestBody},
    },
    event::Event,
    ids::{PartId, PermissionId, QuestionId, SessionId, Timestamp},
    policy::permission::{Rule, Rules, Verdict},
    session::Outcome,
    wait::{Reason, Wait},
};
use serde_json::{Map, json};
use std::sync::Arc;
use store::{
    error::Error,
    log::{
        change::Change,
        record::{Fence, Progress},
    },
    rows::session_row::ParentCall,
    session::{
        park::{Park, ParkOutcome},
        tree::{
            answers::ChildAnswer,
            children::{Dispatch, DispatchOutcome, NewChild},
        },
    },
};
use testkit::{
    database,
    sample::{self, NOW},
};

/// A session that a living worker runs, and the number of its newest write.
pub(crate) struct Actor {
    pub fence: Fence,
}

impl Actor {
    /// Returns the fence for the next write.
    pub(crate) fn next(&mut self) -> Fence {
        self.fence.write_seq += 1;
        self.fence.clone()
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.fence.session
    }
}

impl From<Running> for Actor {
    fn from(running: Running) -> Self {
        Self { fence: running.fence }
    }
}

pub(crate) fn waiting(reason: Reason, until: Option<Timestamp>) -> Park {
    Park::Waiting { wait: Wait { reason, until }, notify: None }
}

/// Makes a child's result for its parent.
pub(crate) fn answer(child: &SessionId, call: &ParentCall, text: &str) -> ChildAnswer {
    let (child, part_id) = (child.clone(), call.part_id.clone());
    ChildAnswer {
        child,
        part_id,
        outcome: Outcome::Done,
        text: text.to_owned(),
        summary: serde_json::Value::Null,
    }
}

/// Makes the end of a child's turn.
pub(crate) fn finished(child: &SessionId, call: &ParentCall, text: &str) -> Park {
    let answer = Some((call.session.clone(), answer(child, call, text)));
    Park::Idle { outcome: Outcome::Done, error: None, answer }
}

/// Makes the part of a call.
fn part_of(call: &ParentCall, state: ToolState) -> Part {
    let tool = Tool { call_id: "call-1".to_owned(), tool: "task".to_owned(), state };
    Part {
        id: call.part_id.clone(),
        session_id: call.session.clone(),
        message_id: call.message_id.clone(),
        body: Body::Tool(tool),
    }
}

impl World {
    pub(crate) async fn actor(&mut self) -> Actor {
        self.running().await.into()
    }

    /// Takes a runnable session for a new worker.
    pub(crate) async fn take_as_actor(&self, session: &SessionId) -> Actor {
        let worker = self.worker().await;
        Actor { fence: self.take(session, worker).await.unwrap().fence }
    }

    /// Makes a starting call, and the changes that record it.
    pub(crate) fn call(&mut self, session: &SessionId) -> (ParentCall, Vec<Change>) {
        let prompt = self.sample.user(session).id;
        let message = self.sample.assistant(session, &prompt);
        let part_id = PartId::make(&mut self.sample.ids, NOW);
        let call = ParentCall { session: session.clone(), message_id: message.id.clone(), part_id };
        let time = Span { start: NOW, end: None };
        let running = ToolState::Running { input: json!({}), title: None, metadata: None, time };
        let message = Event::MessageUpdated(Box::new(Message::Assistant(Box::new(message))));
        let part = Event::PartUpdated { part: Box::new(part_of(&call, running)), at: NOW };
        let changes = vec![self.change(message), self.change(part)];
        (call, changes)
    }

    /// Makes the change that ends a call.
    pub(crate) fn end_of(&mut self, call: &ParentCall) -> Change {
        let (output, title, metadata) = (Arc::default(), String::new(), Map::new());
        let (time, attachments) = (Ran::new(NOW, NOW), vec![]);
        let over = ToolState::Completed { input: json!({}), output, title, metadata, time, attachments };
        self.change(Event::PartUpdated { part: Box::new(part_of(call, over)), at: NOW })
    }

    /// Makes a child that will answer a call.
    pub(crate) fn new_child(&mut self, call: &ParentCall) -> NewChild {
        let session = self.sample.session();
        let mut prompt = self.prompt(&session, "find out");
        prompt.dedupe = format!("task:{}", call.part_id);
        NewChild {
            call: call.clone(),
            title: "Find out (@explore subagent)".to_owned(),
            agent: "explore".to_owned(),
            model: sample::model(),
            is_model_chosen: false,
            permissions: vec![Rules(vec![Rule::of("edit", Verdict::Deny)]), Rules::default()],
            own_source: None,
            prompt,
            event_ids: [self.sample.event(), self.sample.event()],
        }
    }

    /// Makes the same child with a new prompt for another call.
    pub(crate) fn resumed(&mut self, child: &SessionId, call: &ParentCall) -> NewChild {
        let mut new = self.new_child(call);
        new.prompt = self.prompt(child, "go on");
        new.prompt.dedupe = format!("task:{}", call.part_id);
        new
    }

    pub(crate) async fn try_dispatch(
        &mut self,
        parent: &Fence,
        resumes: Option<&SessionId>,
    ) -> Result<(DispatchOutcome, NewChild), Error> {
        let (call, changes) = self.call(&parent.session);
        let (child, dispatch) = match resumes {
            Some(child) => (self.resumed(child, &call), Dispatch::Resumed),
            None => (self.new_child(&call), Dispatch::New),
        };
        let outcome = self.store.dispatch_child(parent, &changes, &child, dispatch, NOW).await?;
        Ok((outcome, child))
    }

    /// Creates a call of a parent, and its child, which waits for a worker.
    pub(crate) async fn dispatch(&mut self, parent: &mut Actor) -> (ParentCall, SessionId) {
        let (outcome, child) = self.try_dispatch(&parent.next(), None).await.unwrap();
        assert!(matches!(outcome, DispatchOutcome::Dispatched { .. }), "{outcome:?}");
        (child.call, child.prompt.session_id)
    }

    /// Creates a call of a parent whose child runs.
    pub(crate) async fn child(&mut self, parent: &mut Actor) -> (ParentCall, Actor) {
        let (call, child) = self.dispatch(parent).await;
        (call, self.take_as_actor(&child).await)
    }

    /// Parks a loop with the given read position.
    pub(crate) async fn park_as(&self, actor: &mut Actor, read_input: u64, park: &Park) -> ParkOutcome {
        self.store.park(&actor.next(), &[], read_input, park, NOW).await.unwrap()
    }

    /// Makes a permission or question of a session's call, with the call.
    pub(crate) fn request(&mut self, session: &SessionId, body: RequestBody) -> (Request, Vec<Change>) {
        let (call, mut changes) = self.call(session);
        let id = match &body {
            RequestBody::Permission { .. } => Id::Permission(PermissionId::of(&call.part_id)),
            RequestBody::Question { .. } => Id::Question(QuestionId::of(&call.part_id)),
        };
        let request = Request {
            id,
            session_id: session.clone(),
            message_id: call.message_id,
            part_id: call.part_id,
            call_id: "call-1".to_owned(),
            body,
            expires_at: None,
        };
        changes.push(self.change(Event::RequestAsked(Box::new(request.clone()))));
        (request, changes)
    }

    /// Makes a loop ask for a permission.
    pub(crate) async fn ask(&mut self, actor: &mut Actor) -> Request {
        let (request, changes) = self.request(actor.session(), permission());
        self.store.append(&actor.next(), &changes, 0, Progress::None, NOW).await.unwrap();
        request
    }

    /// Returns the kinds of the inputs after the first prompt.
    pub(crate) async fn inputs(&self, session: &SessionId) -> Vec<String> {
        let inputs = self.store.list_inputs(self.tenant, session, 1).await.unwrap();
        inputs.into_iter().map(|input| input.kind.as_str().to_owned()).collect()
    }

    /// Waits until this number of connections of the database wait for a lock.
    pub(crate) async fn blocked(&self, count: i64) {
        let sql = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'";
        testkit::eventually("a lock is waited for", async || self.number(sql).await == count).await;
    }

    /// Locks the control row of a session in a separate transaction, as another writer would.
    pub(crate) async fn hold(&self, session: &SessionId) -> sqlx::PgConnection {
        let mut connection = database::connect(&self.database.migrator_url).await;
        let lock = format!("begin; select 1 from session_run where session_id = '{session}' for update");
        sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut connection).await.unwrap();
        connection
    }
}

/// May `ls` run?
pub(crate) fn permission() -> RequestBody {
    let (patterns, always) = (vec!["ls -l".to_owned()], vec!["ls *".to_owned()]);
    let metadata = json!({"command": "ls -l"}).as_object().unwrap().clone();
    RequestBody::Permission { permission: "bash".to_owned(), patterns, always, metadata }
}

pub(crate) fn question() -> RequestBody {
    let question = Question {
        question: "Which one?".to_owned(),
        header: "One".to_owned(),
        options: vec![],
        multiple: false,
    };
    RequestBody::Question { questions: vec![question] }
}
