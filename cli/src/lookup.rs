//! Finds what a person names in short: a session by the beginning or the end of its id, or as the last used one of a directory.

use crate::{
    client::{Client, Paged, call, first_pages},
    exit::{self, coded},
    terminal::{output::Output, paint::one_line},
};
use anyhow::{Context as _, Result};
use rpc::v1::{ErrorCode, ListSessionsRequest, Session};
use std::env;

/// The word for the last used session of the current directory.
const NEWEST: &str = "@";
/// What the ids of sessions begin with.
const PREFIX: &str = "ses_";
/// Characters of a whole id.
const ID_CHARS: usize = 30;
/// Characters that name a session at least: fewer fit too many.
const CHARS_MIN: usize = 4;
/// Sessions among which a short name is looked up, the last used ones. Beyond it: `session_not_found`.
const SESSIONS_MAX: usize = 2_000;
/// Sessions of a directory of which one must be no subtask, for `@`. A prompt moves its session to the beginning.
const NEWEST_MAX: usize = 200;
/// Sessions that an error names.
const NAMED_MAX: usize = 5;
/// Characters of a title.
const TITLE_CHARS: usize = 50;

/// The id of the session that a person names.
///
/// # Errors
/// `session_not_found`, `session_ambiguous`; the refusal of the gateway.
pub(crate) async fn session(client: &Client, output: &Output, named: &str) -> Result<String> {
    SessionFinder::new(client, output).find(named).await
}

/// Finds the sessions that a command line names. It loads the last used sessions at most once.
pub(crate) struct SessionFinder<'a> {
    client: &'a Client,
    output: &'a Output,
    /// The last used sessions, once a short name needs them.
    sessions: Option<Vec<Session>>,
}

impl<'a> SessionFinder<'a> {
    pub(crate) fn new(client: &'a Client, output: &'a Output) -> Self {
        Self { client, output, sessions: None }
    }

    /// Like [`session`].
    ///
    /// # Errors
    /// Those of [`session`].
    pub(crate) async fn find(&mut self, named: &str) -> Result<String> {
        if named == NEWEST {
            return Ok(newest(self.client, self.output, None).await?.id);
        }
        if named.starts_with(PREFIX) && is_whole(named) {
            return Ok(named.to_owned());
        }
        let sessions = match &mut self.sessions {
            Some(sessions) => sessions,
            none => none.insert(newest_sessions(self.client, SESSIONS_MAX).await?),
        };
        match fit(sessions, |session| &session.id, named) {
            Fit::One(session) => Ok(session.id.clone()),
            Fit::Nothing => Err(coded(
                ErrorCode::SessionNotFound,
                format!(
                    "no session has {named:?} at the beginning or the end of its id; `flotilla ls` lists the sessions"
                ),
            )),
            Fit::Several(several) => {
                let lines = several.iter().take(NAMED_MAX).map(|session| line(session));
                let lines: Vec<_> =
                    lines.chain((several.len() > NAMED_MAX).then(|| "…".to_owned())).collect();
                let message = format!("{} sessions fit {named:?}:\n  {}", several.len(), lines.join("\n  "));
                Err(coded(ErrorCode::SessionAmbiguous, message))
            }
        }
    }
}

/// Whether a person can mean nothing but a session.
pub(crate) fn means_session(named: &str) -> bool {
    named == NEWEST || named.starts_with(PREFIX)
}

/// The last used session of a project that is no subtask; without a project, of the project that this directory belongs to. Says which it is.
///
/// # Errors
/// `session_not_found`; the refusal of the gateway.
pub(crate) async fn newest(client: &Client, output: &Output, project_id: Option<String>) -> Result<Session> {
    let project_id = match project_id {
        Some(project_id) => project_id,
        None => project_here(client).await?,
    };
    let sessions = match list(client, &project_id, NEWEST_MAX).await {
        // The directory has an id before it has a project.
        Err(error) if exit::has_code(&error, ErrorCode::ProjectNotFound) => vec![],
        sessions => sessions?,
    };
    let newest = sessions.into_iter().find(|session| session.parent_id.is_empty()).ok_or_else(|| {
        coded(
            ErrorCode::SessionNotFound,
            "there is no session of this directory yet; `flotilla run \"…\"` starts one",
        )
    })?;
    output.note(&format!("{NEWEST} is {}", line(&newest)));
    Ok(newest)
}

/// The project of the current directory. A directory that no project knows has an id too, but no sessions.
async fn project_here(client: &Client) -> Result<String> {
    let here = env::current_dir().context("read the current directory")?;
    let project = client.get_json("/project/current", Some(&here)).await.context("find the project")?;
    Ok(project["id"].as_str().context("read the project")?.to_owned())
}

/// The last used sessions, archived ones too.
///
/// # Errors
/// The refusal of the gateway.
pub(crate) async fn newest_sessions(client: &Client, most: usize) -> Result<Vec<Session>> {
    list(client, "", most).await
}

/// The last used sessions of a project; with an empty id, of all.
async fn list(client: &Client, project_id: &str, most: usize) -> Result<Vec<Session>> {
    let sessions = first_pages(most, async |page| {
        let request = ListSessionsRequest {
            page: Some(page),
            project_id: project_id.to_owned(),
            include_archived: true,
            ..ListSessionsRequest::default()
        };
        let list = async || client.sessions().list_sessions(request.clone()).await;
        let answer = call("list sessions", list).await?;
        Ok(Paged { entries: answer.sessions, next_cursor: answer.next_cursor })
    });
    Ok(sessions.await?.entries)
}

/// What fits a short name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit<'a, T> {
    Nothing,
    One(&'a T),
    Several(Vec<&'a T>),
}

/// Which entries a person may mean, who names one by the beginning or the end of its id.
pub(crate) fn fit<'a, T>(entries: &'a [T], id: impl Fn(&T) -> &str, named: &str) -> Fit<'a, T> {
    let mut found: Vec<_> = entries.iter().filter(|entry| fits(id(entry), named)).collect();
    match found.len() {
        0 | 1 => found.pop().map_or(Fit::Nothing, Fit::One),
        _ => Fit::Several(found),
    }
}

/// Whether a person gives a whole id.
pub(crate) fn is_whole(named: &str) -> bool {
    named.len() >= ID_CHARS
}

/// Whether an id has these characters at its beginning, with or without the prefix, or at its end.
fn fits(id: &str, named: &str) -> bool {
    let tail = id.split_once('_').map_or(id, |(_, tail)| tail);
    named.len() >= CHARS_MIN && (id.starts_with(named) || tail.starts_with(named) || tail.ends_with(named))
}

fn line(session: &Session) -> String {
    format!("{}  {}", session.id, one_line(&session.title, TITLE_CHARS))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::fake::{Fake, SESSION};

    #[tokio::test]
    async fn a_session_is_named_by_the_beginning_or_the_end_of_its_id() {
        let fake = Fake::default();
        let (client, output) = (fake.serve().await, Output::kept(false));
        let find = async |named: &str| session(&client, &output, named).await;
        for named in [SESSION, "ses_1ffcce3d", "1ffcce3d", "kUL559D5O", "9D5O"] {
            assert_eq!(find(named).await.unwrap(), SESSION, "{named}");
        }
        let other = "ses_1ffcce3d00016Oy45kUL559D5P";
        assert_eq!(find(other).await.unwrap(), other, "the gateway knows whether it exists");
        for named in ["D5O", "1FFCCE3D", "ffcce3d", "nope"] {
            assert_eq!(exit::code(&find(named).await.unwrap_err()), "session_not_found", "{named}");
        }
        fake.0.lock().unwrap().sessions = [SESSION, other]
            .map(|id| Session { id: id.to_owned(), title: format!("of {id}"), ..Session::default() })
            .to_vec();
        let refused = find("ses_1ffcce3d").await.unwrap_err();
        let text = refused.to_string();
        assert_eq!(exit::code(&refused), "session_ambiguous");
        assert!(text.contains(SESSION) && text.contains(&format!("of {other}")), "{text}");
        assert_eq!(find("9D5P").await.unwrap(), other);
    }

    #[tokio::test]
    async fn several_short_names_load_the_sessions_once_and_whole_ids_never() {
        let fake = Fake::default();
        let (client, output) = (fake.serve().await, Output::kept(false));
        let mut finder = SessionFinder::new(&client, &output);
        for (named, lists) in [(SESSION, 0), ("9D5O", 1), (SESSION, 1), ("1ffcce3d", 1)] {
            assert_eq!(finder.find(named).await.unwrap(), SESSION);
            assert_eq!(fake.0.lock().unwrap().session_lists, lists, "{named}");
        }
    }

    #[test]
    fn a_short_name_fits_nothing_one_or_several() {
        let ids = ["pty_abcd1", "pty_abcd2", "pty_efgh3"];
        let find = |named: &str| fit(&ids, |id| id, named);
        assert_eq!(find("abcd"), Fit::Several(vec![&ids[0], &ids[1]]));
        assert_eq!(find("pty_abcd2"), Fit::One(&ids[1]));
        assert_eq!(find("fgh3"), Fit::One(&ids[2]));
        assert_eq!(find("gh3"), Fit::Nothing);
    }
}
