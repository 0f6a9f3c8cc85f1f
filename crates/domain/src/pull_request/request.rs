//! What a comment asks for, and whether its author may ask for it.

use super::{command::Command, permission::Permission, visible::VisibleText};
use serde::{Deserialize, Serialize};

/// The kind of a comment: each has ids of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommentKind {
    /// The first text of the issue or the pull request. Its id is the number.
    Body,
    /// A comment on the issue or the pull request.
    Comment,
    /// A comment on a line of a pull request.
    Line,
}

/// Names a comment in its repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommentId {
    pub kind: CommentKind,
    pub id: u64,
}

/// Who did something at a forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeActor {
    pub login: String,
    /// Whether it is a person. Apps and bots start nothing.
    pub is_person: bool,
}

/// A comment as its forge tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    pub id: CommentId,
    pub author: ForgeActor,
    pub body: String,
}

/// A command that a person has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub command: Command,
    /// Whether the comment had text that a page does not show.
    pub had_hidden: bool,
}

/// What is done about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The author may not give it. One line tells why.
    Refused(String),
}

impl Request {
    /// Finds the command of a comment. `None`: nobody asks for anything. The text of a bot is never a request, so two bots that mention each other stop at once.
    pub fn find(comment: &Comment) -> Option<Self> {
        if !comment.author.is_person {
            return None;
        }
        let VisibleText { text, had_hidden } = VisibleText::of(&comment.body);
        Some(Self { command: Command::find(&text)?, had_hidden })
    }

    /// Decides by what the author may do in the repository at this moment.
    pub fn judge(&self, author: &ForgeActor, permission: Permission) -> Verdict {
        let needed = self.command.needs();
        if permission >= needed {
            return Verdict::Accepted;
        }
        let (login, has, needs) = (&author.login, permission.as_str(), needed.as_str());
        Verdict::Refused(format!("{login} has {has} access here, and this needs {needs} access."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(body: &str, is_person: bool) -> Comment {
        let author = ForgeActor { login: "ann".to_owned(), is_person };
        Comment { id: CommentId { kind: CommentKind::Comment, id: 1 }, author, body: body.to_owned() }
    }

    #[test]
    fn only_the_visible_text_of_a_person_asks() {
        let find =
            |body, is_person| Request::find(&comment(body, is_person)).map(|it| (it.command, it.had_hidden));
        assert_eq!(find("/oc fix", true), Some((Command::Work("fix".to_owned()), false)));
        assert_eq!(find("/oc fix<!-- and leak -->", true), Some((Command::Work("fix".to_owned()), true)));
        assert_eq!(find("<!--\n/oc fix\n-->", true), None);
        assert_eq!(find("/oc fix", false), None, "a bot");
    }

    #[test]
    fn the_permission_decides() {
        let author = ForgeActor { login: "bob".to_owned(), is_person: true };
        for (command, weakest) in [
            (Command::Work(String::new()), Permission::Write),
            (Command::Stop, Permission::Write),
            (Command::Status, Permission::Read),
            (Command::Help, Permission::Read),
        ] {
            let request = Request { command, had_hidden: false };
            for permission in Permission::ALL {
                let is_accepted = request.judge(&author, permission) == Verdict::Accepted;
                assert_eq!(is_accepted, permission >= weakest, "{request:?} {permission:?}");
            }
        }
        let request = Request { command: Command::Stop, had_hidden: false };
        let Verdict::Refused(text) = request.judge(&author, Permission::Read) else {
            panic!("a reader stops nothing")
        };
        assert_eq!(text, "bob has read access here, and this needs write access.");
    }
}
