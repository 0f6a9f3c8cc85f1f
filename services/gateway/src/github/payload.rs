//! Deliveries as GitHub sends them, as far as they matter here. GitHub adds fields, so unknown ones are skipped; a delivery of an unknown event is stored and ignored.

use crate::app::forge::intake::ForgeComment;
use domain::pull_request::request::{Comment, CommentId, CommentKind, ForgeActor};
use serde::Deserialize;

/// Bytes of the part of a file that a comment on lines shows.
const HUNK_BYTES_MAX: usize = 4 * 1024;

/// What a delivery is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeliverySubject {
    pub(super) installation: Option<u64>,
    /// The repository and the number of the issue or the pull request; empty: none.
    pub(super) thread: String,
}

/// What a delivery asks for.
#[derive(Debug)]
pub(super) enum Meaning {
    Comment(Box<ForgeComment>),
    /// Nothing, and why.
    Nothing(String),
}

/// The parts that deliveries of several events share.
#[derive(Debug, Deserialize)]
struct Payload {
    #[serde(default)]
    action: String,
    #[serde(default)]
    installation: Option<Installation>,
    #[serde(default)]
    repository: Option<Repository>,
    #[serde(default)]
    issue: Option<Issue>,
    #[serde(default)]
    pull_request: Option<Issue>,
    #[serde(default)]
    comment: Option<CommentPayload>,
    #[serde(default)]
    sender: Option<User>,
}

#[derive(Debug, Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Debug, Deserialize)]
struct Repository {
    id: u64,
    full_name: String,
}

/// An issue or a pull request.
#[derive(Debug, Deserialize)]
struct Issue {
    number: u64,
    #[serde(default)]
    title: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    user: Option<User>,
    /// Present in an issue that is a pull request.
    #[serde(default)]
    pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct CommentPayload {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    user: Option<User>,
    /// Of a comment on lines.
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    diff_hunk: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    login: String,
    #[serde(default, rename = "type")]
    kind: String,
}

impl User {
    fn actor(&self) -> ForgeActor {
        // Only accounts of people have this type; those of Apps and organizations have others.
        ForgeActor {
            login: self.login.clone(),
            is_person: self.kind == "User" && !self.login.ends_with("[bot]"),
        }
    }
}

/// Reads what a delivery is about.
///
/// # Errors
/// What is wrong with it.
pub(super) fn subject(body: &[u8]) -> Result<DeliverySubject, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(body)?;
    let number = payload.issue.as_ref().or(payload.pull_request.as_ref()).map(|issue| issue.number);
    let thread = payload.repository.as_ref().zip(number);
    Ok(DeliverySubject {
        installation: payload.installation.map(|installation| installation.id),
        thread: thread.map(|(repository, number)| format!("{}#{number}", repository.id)).unwrap_or_default(),
    })
}

/// Reads what a delivery asks for.
///
/// # Errors
/// What is wrong with it.
pub(super) fn meaning(event: &str, body: &[u8]) -> Result<Meaning, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(body)?;
    let nothing = |why: &str| Ok(Meaning::Nothing(why.to_owned()));
    let (kind, subject) = match (event, payload.action.as_str()) {
        ("issue_comment", "created") => (CommentKind::Comment, payload.issue.as_ref()),
        ("pull_request_review_comment", "created") => (CommentKind::Line, payload.pull_request.as_ref()),
        ("issues", "opened") => (CommentKind::Body, payload.issue.as_ref()),
        ("pull_request", "opened") => (CommentKind::Body, payload.pull_request.as_ref()),
        (event, "") => return nothing(&format!("nothing follows from {event}")),
        (event, action) => return nothing(&format!("nothing follows from {event} {action}")),
    };
    let (Some(subject), Some(repository), Some(installation)) =
        (subject, &payload.repository, &payload.installation)
    else {
        return nothing("it names no issue, no repository or no installation");
    };
    let Some(comment) = comment(kind, &payload, subject) else {
        return nothing("it has no comment of an author");
    };
    // An edit by somebody else would let them speak for the author.
    if payload.sender.as_ref().is_some_and(|sender| sender.login != comment.author.login) {
        return nothing("somebody else than the author sent it");
    }
    let is_pull_request = subject.pull_request.is_some() || payload.pull_request.is_some();
    Ok(Meaning::Comment(Box::new(ForgeComment {
        installation: installation.id,
        repository: repository.id,
        repository_name: repository.full_name.clone(),
        number: subject.number,
        is_pull_request,
        title: subject.title.clone(),
        description: if kind == CommentKind::Body {
            String::new()
        } else {
            subject.body.clone().unwrap_or_default()
        },
        lines: payload.comment.as_ref().map(lines).unwrap_or_default(),
        comment,
    })))
}

fn comment(kind: CommentKind, payload: &Payload, subject: &Issue) -> Option<Comment> {
    let (id, body, user) = match kind {
        CommentKind::Body => (subject.number, &subject.body, &subject.user),
        CommentKind::Comment | CommentKind::Line => {
            let comment = payload.comment.as_ref()?;
            (comment.id, &comment.body, &comment.user)
        }
    };
    Some(Comment {
        id: CommentId { kind, id },
        author: user.as_ref()?.actor(),
        body: body.clone().unwrap_or_default(),
    })
}

/// The lines on which a comment stands, with what the file has there.
fn lines(comment: &CommentPayload) -> String {
    let Some(path) = &comment.path else { return String::new() };
    let line = comment.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let hunk = comment.diff_hunk.as_deref().unwrap_or_default();
    let hunk = domain::text::tail(hunk, HUNK_BYTES_MAX);
    let quoted: Vec<_> = hunk.lines().map(|line| format!("> {line}")).collect();
    format!("This is about the file {path}{line}:\n{}", quoted.join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::{Value, json};

    fn delivery(event: &str, action: &str, change: impl Fn(&mut Value)) -> Meaning {
        let user = json!({"login": "ann", "type": "User"});
        let issue = json!({"number": 7, "title": "It fails", "body": "Look.", "user": user});
        let mut payload = json!({
            "action": action, "installation": {"id": 3}, "sender": user,
            "repository": {"id": 9, "full_name": "acme/app"},
            "issue": issue, "comment": {"id": 5, "body": "/oc fix", "user": user},
        });
        change(&mut payload);
        meaning(event, payload.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_comment_has_its_place_and_its_author() {
        let Meaning::Comment(found) = delivery("issue_comment", "created", |_| {}) else {
            panic!("a comment")
        };
        assert_eq!((found.installation, found.repository, found.number), (3, 9, 7));
        assert_eq!((found.repository_name.as_str(), found.description.as_str()), ("acme/app", "Look."));
        assert_eq!(found.comment.id, CommentId { kind: CommentKind::Comment, id: 5 });
        assert!(found.comment.author.is_person && !found.is_pull_request);
        let of_pull = |payload: &mut Value| payload["issue"]["pull_request"] = json!({"url": "x"});
        let Meaning::Comment(found) = delivery("issue_comment", "created", of_pull) else {
            panic!("a comment")
        };
        assert!(found.is_pull_request);
        let Meaning::Comment(found) = delivery("issues", "opened", |_| {}) else { panic!("a comment") };
        assert_eq!(found.comment.id, CommentId { kind: CommentKind::Body, id: 7 });
        assert_eq!((found.comment.body.as_str(), found.description.as_str()), ("Look.", ""));
    }

    #[test]
    fn a_comment_on_lines_says_where() {
        let on_lines = |payload: &mut Value| {
            payload["pull_request"] = payload["issue"].take();
            payload["comment"]["path"] = json!("src/a.rs");
            payload["comment"]["line"] = json!(12);
            payload["comment"]["diff_hunk"] = json!("@@ -1 +1 @@\n-a\n+b");
        };
        let Meaning::Comment(found) = delivery("pull_request_review_comment", "created", on_lines) else {
            panic!("a comment")
        };
        assert!(found.is_pull_request);
        assert_eq!(found.lines, "This is about the file src/a.rs, line 12:\n> @@ -1 +1 @@\n> -a\n> +b");
    }

    #[test]
    fn everything_else_asks_for_nothing() {
        for (event, action) in
            [("issue_comment", "edited"), ("issue_comment", "deleted"), ("push", ""), ("fork", "x")]
        {
            assert!(matches!(delivery(event, action, |_| {}), Meaning::Nothing(_)), "{event} {action}");
        }
        for name in ["installation", "repository", "issue", "comment"] {
            let without = |payload: &mut Value| payload[name] = Value::Null;
            assert!(matches!(delivery("issue_comment", "created", without), Meaning::Nothing(_)), "{name}");
        }
        let by_another = |payload: &mut Value| payload["sender"]["login"] = json!("bob");
        assert!(matches!(delivery("issue_comment", "created", by_another), Meaning::Nothing(_)));
    }

    #[test]
    fn only_people_are_people() {
        for (login, kind, is_person) in [
            ("ann", "User", true),
            ("flotilla[bot]", "Bot", false),
            ("flotilla[bot]", "User", false),
            ("acme", "Organization", false),
            ("ann", "", false),
        ] {
            let by = |payload: &mut Value| {
                payload["comment"]["user"] = json!({"login": login, "type": kind});
                payload["sender"] = payload["comment"]["user"].clone();
            };
            let Meaning::Comment(found) = delivery("issue_comment", "created", by) else {
                panic!("a comment")
            };
            assert_eq!(found.comment.author.is_person, is_person, "{login} {kind}");
        }
    }

    #[test]
    fn deliveries_of_one_thread_have_one_name() {
        let body = json!({"installation": {"id": 3}, "repository": {"id": 9, "full_name": "a/b"}, "issue": {"number": 7}});
        let want = DeliverySubject { installation: Some(3), thread: "9#7".to_owned() };
        assert_eq!(subject(body.to_string().as_bytes()).unwrap(), want);
        assert_eq!(subject(b"{}").unwrap(), DeliverySubject::default());
        for wrong in ["", "1", "{", "{\"issue\": {\"number\": -1}}", "{\"action\": 1}"] {
            assert!(subject(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
