//! The end of planning: when the person approves the plan, a message of ours lets the agent that builds go on. It is stored in
//! the write that ends the call, so that it is there once, whichever worker takes the answer.

use super::{Loop, waiting::Waiting};
use crate::{
    clock::now,
    record::Stopped,
    tools::plan_exit::{self, Chosen},
};
use domain::{
    agent::Agent,
    event::Event,
    message::{Message, User},
    part::{Body, Ran, Span, Text, ToolState},
    turn::Input,
};
use serde_json::Map;
use store::log::record::Progress;

impl Loop {
    /// Takes the person's answer to a plan.
    pub(super) async fn plan_answered(
        &mut self,
        waiting: &Waiting,
        labels: &[Vec<String>],
    ) -> Result<(), Stopped> {
        match plan_exit::chosen(labels) {
            Chosen::Build => self.build(waiting).await,
            Chosen::Stay => self.refuse_call(waiting).await,
            Chosen::Words(words) => {
                let text = format!("The person does not want the plan carried out yet and says: {words}");
                self.end_call(waiting, Err(text)).await
            }
        }
    }

    async fn build(&mut self, waiting: &Waiting) -> Result<(), Stopped> {
        let Some(user) = self.conversation.newest_user(&self.inputs) else { return Ok(()) };
        let build = Agent::Build.as_str().to_owned();
        let user = User { agent: build, ..self.copy_of(user) };
        let id = user.id.clone();
        let start = match &waiting.tool.state {
            ToolState::Running { time, .. } => time.start,
            ToolState::Pending { .. } | ToolState::Completed { .. } | ToolState::Error { .. } => now(),
        };
        let state = ToolState::Completed {
            input: waiting.tool.state.input().clone(),
            output: plan_exit::DONE.to_owned().into(),
            title: "Switching to build agent".to_owned(),
            metadata: Map::new(),
            time: Ran::new(start, now()),
            attachments: vec![],
        };
        let mut events: Vec<Event> = self.tool_event(&waiting.call_id, state).into_iter().collect();
        events.push(Event::MessageUpdated(Box::new(Message::User(user))));
        let time = Some(Span { start: now(), end: Some(now()) });
        let text = Text { time, ..Text::synthetic(plan_exit::APPROVED) };
        events.push(self.new_part(&id, Body::Text(text)));
        self.record.write(&mut self.conversation, events, Progress::Made).await?;
        self.happened.push_back(Input::ToolEnded(waiting.call_id.clone()));
        Ok(())
    }
}
