//! The client of a scenario: its session, its transcript, and its actions.

use super::{Answer, ClientAction, Moment, Scenario};
use e2e::{Stack, turn::Watch};
use rpc::v1::{self, ForkFiles};
use tonic::Status;

pub(super) struct Client<'a> {
    stack: &'a Stack,
    pub(super) session: String,
    pub(super) watch: Watch,
    /// The event of the newest prompt.
    pub(super) accepted: u64,
}

impl<'a> Client<'a> {
    pub(super) async fn start(stack: &'a Stack, scenario: &Scenario) -> Self {
        let session = session_for(stack, scenario).await;
        let watch = Watch::start(&stack.api, &session).await;
        Self { stack, session, watch, accepted: 0 }
    }

    pub(super) async fn prompt(&mut self, say: fn(&mut v1::AcceptPromptRequest)) {
        let accepted = self.stack.api.prompt_with(&self.session, say).await.expect("an accepted prompt");
        self.accepted = accepted.event_seq;
    }

    pub(super) async fn answer(&self, answer: Answer, id: &str) -> Result<(), Status> {
        let api = &self.stack.api;
        match answer {
            Answer::Nothing => panic!("the scenario expects no request"),
            Answer::Permission(answer, message) => api.reply(id, answer, message).await,
            Answer::Question(label) => {
                // Without an answer, the client rejects the request.
                let labels = |label: &str| v1::QuestionAnswer { labels: vec![label.to_owned()] };
                let answers = label.map(labels).into_iter().collect();
                let reply = v1::ReplyQuestionRequest { question_id: id.to_owned(), answers };
                api.questions().reply_question(reply).await.map(drop)
            }
            Answer::Abort => api.abort(&self.session).await.map(|was_active| assert!(was_active)),
        }
    }

    /// Performs the actions of that moment. `request_id` names the open request, if any.
    pub(super) async fn perform(&mut self, scenario: &Scenario, when: Moment, request_id: &str) {
        for (_, deed) in scenario.actions.iter().filter(|(at, _)| *at == when) {
            match *deed {
                ClientAction::Prompt(say) => self.prompt(say).await,
                ClientAction::Refused(say, code) => {
                    let refused = self.stack.api.prompt_with(&self.session, say).await;
                    assert_code(refused, code);
                }
                ClientAction::AnswerAgain(code) => {
                    assert_code(self.answer(scenario.answer, request_id).await, code)
                }
                ClientAction::Fork => self.fork().await,
                ClientAction::Revert => self.revert().await,
            }
        }
    }

    async fn fork(&mut self) {
        let files = ForkFiles::Now.into();
        let request =
            v1::ForkSessionRequest { session_id: self.session.clone(), files, ..Default::default() };
        let forked = self.stack.api.sessions().fork_session(request).await.expect("a fork").into_inner();
        self.session = forked.session.expect("a session").id;
        self.watch = Watch::start(&self.stack.api, &self.session).await;
    }

    async fn revert(&self) {
        let talk = self.stack.api.conversation(&self.session).await;
        let mut prompts = talk.iter().filter(|(info, _)| info["role"] == "user");
        let message_id = prompts.next_back().expect("a prompt").0["id"].as_str().expect("an id").to_owned();
        let session_id = self.session.clone();
        let request = v1::RevertSessionRequest { session_id, message_id, ..Default::default() };
        self.stack.api.sessions().revert_session(request).await.expect("a revert");
    }
}

#[track_caller]
fn assert_code<T>(result: Result<T, Status>, code: &str) {
    let status = result.err().expect("a refusal");
    assert_eq!(e2e::api::code(&status), code, "{status:?}");
}

async fn session_for(stack: &Stack, scenario: &Scenario) -> String {
    let source = match scenario.files {
        [] => None,
        files => {
            let bundle_id = stack.api.upload(&testkit::git::repository(files).bundle()).await;
            Some(v1::Source { from: Some(v1::source::From::BundleId(bundle_id)), revision: String::new() })
        }
    };
    stack.api.session_with(source, scenario.rules).await
}
