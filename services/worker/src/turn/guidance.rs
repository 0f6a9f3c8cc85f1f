//! The guidance of a turn: a separate task reads it, from the files of the session, or from the commit of its source while there are none.

use super::session::Session;
use crate::repository::{
    above::SettingsAbove,
    guidance::{Guidance, GuidanceError, left_out_error, too_large_error},
};
use chassis::tasks;
use domain::{
    conversation::{
        message::{Error, Message, User},
        part::{Body, NO_REPLY, Text},
    },
    event::Event,
    ids::MessageId,
};
use settings::Settings;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

/// The guidance of the turn, and the task that reads it.
pub(super) struct TurnGuidance {
    above: SettingsAbove,
    guidance: Arc<Guidance>,
    /// The prompt for which the guidance was read.
    read_for: Option<MessageId>,
    /// The errors of it that people have been told in this turn.
    told: Vec<Error>,
    reading: Option<AbortOnDropHandle<(MessageId, Result<Guidance, GuidanceError>)>>,
}

/// The state of a turn's guidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    /// The guidance is being read.
    Wait,
    Read,
}

impl TurnGuidance {
    pub(super) fn new(above: SettingsAbove) -> Self {
        Self { above, guidance: Arc::default(), read_for: None, told: vec![], reading: None }
    }

    /// The guidance for this turn.
    pub(super) fn guidance(&self) -> &Arc<Guidance> {
        &self.guidance
    }

    /// What people must know of the guidance, and have not been told in this turn: mistakes, files that were not read, and an environment that is not used.
    pub(super) fn notices(&mut self) -> Vec<Event> {
        let Guidance { problems, too_large, environment_notice, .. } = &*self.guidance;
        let problems = problems.as_deref().map(left_out_error);
        let unused = environment_notice.as_ref().map(|notice| notice.error());
        let errors = problems.into_iter().chain(too_large_error(too_large)).chain(unused);
        let new: Vec<Error> = errors.filter(|error| !self.told.contains(error)).collect();
        self.told.extend(new.iter().cloned());
        new.into_iter().map(Event::SessionError).collect()
    }

    /// The settings: including those of the repository once they were read.
    pub(super) fn settings(&self) -> &Settings {
        match &self.read_for {
            Some(_) => &self.guidance.settings,
            None => &self.above.settings,
        }
    }

    /// Whether the guidance of this turn was read, if there can be any.
    pub(super) fn is_guided(&self, session: &Session) -> bool {
        self.need(session.newest_user().map(|user| &user.id), session.may_have_files(), opened(session))
            == Need::Nothing
    }

    /// `opened` is the base commit of the files, if this loop has opened them.
    fn need(&self, prompt: Option<&MessageId>, may_have_files: bool, opened: Option<&str>) -> Need {
        let is_valid = opened.is_none_or(|opened| !self.guidance.is_outdated(opened));
        let is_read = prompt.is_none_or(|prompt| self.read_for.as_ref() == Some(prompt) && is_valid);
        if is_read || !may_have_files {
            Need::Nothing
        } else if self.reading.is_some() {
            Need::Wait
        } else {
            Need::Read
        }
    }

    /// Starts to read the guidance of this turn, unless it is known. Whether it is being read.
    pub(super) fn read(&mut self, session: &Session) -> bool {
        let Some(user) = session.newest_user() else { return false };
        match self.need(Some(&user.id), session.may_have_files(), opened(session)) {
            Need::Nothing => return false,
            Need::Wait => {}
            Need::Read => {
                let (deps, identity) = (Arc::clone(&session.deps), session.identity.clone());
                let (workspace, above) = (session.workspace.clone(), self.above.clone());
                let (prompt, known) = (user.id.clone(), Arc::clone(&self.guidance));
                self.reading = Some(tasks::spawn_owned("guidance", async move {
                    (prompt, Guidance::read(&deps, &identity, &workspace, &above, &known).await)
                }));
            }
        }
        true
    }

    /// Waits until the guidance is read, if it is being read. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<(), GuidanceError> {
        let Some(handle) = &mut self.reading else { return std::future::pending().await };
        let read = handle.await;
        self.reading = None;
        let (prompt, guidance) =
            read.map_err(|error| GuidanceError::Files(Status::internal(error.to_string())))?;
        self.guidance = Arc::new(guidance?);
        if self.read_for.as_ref() != Some(&prompt) {
            self.told.clear();
        }
        self.read_for = Some(prompt);
        Ok(())
    }
}

/// The base commit of the files, if this loop has opened them.
fn opened(session: &Session) -> Option<&str> {
    session.workspace.found().map(|found| found.base_commit.as_str())
}

/// The note about the environment with which this loop has opened the files, unless it was left before.
pub(super) fn note_of_opening(session: &Session) -> Vec<Event> {
    let Some(user) = session.newest_user() else { return vec![] };
    let notice = session.workspace.take_environment_notice();
    notice.map_or(vec![], |notice| note(session, user, notice.text).into())
}

/// A message for people that needs no answer. The model does not get it.
fn note(session: &Session, user: &User, text: String) -> [Event; 2] {
    let message = User { system: None, tools: None, format: None, ..session.copy_of(user) };
    let part = session.new_part(&message.id, Body::Text(Text::note(text).marked(NO_REPLY, true)));
    [Event::MessageUpdated(Box::new(Message::User(message))), part]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::repository::guidance::GuidanceOrigin;

    #[tokio::test]
    async fn guidance_is_read_once_for_each_prompt() {
        let (first, second): (MessageId, MessageId) = ("msg_1".parse().unwrap(), "msg_2".parse().unwrap());
        let reading = || tasks::spawn_owned("guidance", std::future::pending());
        for (what, read_for, is_reading, prompt, may_have_files, opened, want) in [
            ("a first prompt", None, false, Some(&first), true, None, Need::Read),
            ("while it is read", None, true, Some(&first), true, None, Need::Wait),
            ("after it was read", Some(&first), false, Some(&first), true, None, Need::Nothing),
            (
                "after its commit was opened",
                Some(&first),
                false,
                Some(&first),
                true,
                Some("c1"),
                Need::Nothing,
            ),
            ("after another one was opened", Some(&first), false, Some(&first), true, Some("c2"), Need::Read),
            ("a second prompt", Some(&first), false, Some(&second), true, None, Need::Read),
            ("an empty workspace", None, false, Some(&first), false, None, Need::Nothing),
            ("no prompt", None, false, None, true, None, Need::Nothing),
        ] {
            let mut guidance = TurnGuidance::new(SettingsAbove::of(&[], &[]).unwrap());
            guidance.read_for = read_for.cloned();
            guidance.reading = is_reading.then(reading);
            let origin = GuidanceOrigin::Commit;
            guidance.guidance =
                Arc::new(Guidance { base_commit: "c1".to_owned(), origin, ..Guidance::default() });
            assert_eq!(guidance.need(prompt, may_have_files, opened), want, "{what}");
        }
    }
}
