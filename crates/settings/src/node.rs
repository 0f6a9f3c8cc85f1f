//! Values of settings with their positions. Objects keep the order of keys: in permissions the last match wins.

use domain::policy::level::Level;
use serde_json::{Map, Number, Value};
use std::{fmt, sync::Arc};

/// The position of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The level of its file.
    pub level: Level,
    pub file: Arc<str>,
    /// The line, from 1; 0: it is not known.
    pub line: u32,
    /// The character of the line, from 1; 0: it is not known.
    pub column: u32,
}

impl Origin {
    fn forget_line(&mut self) {
        (self.line, self.column) = (0, 0);
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}:{}", self.file, self.column),
        }
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Key(Arc<str>),
    /// Into a list, from 0.
    Item(usize),
}

/// The path from the root to a value: `permission.bash."git push*"`, `instructions[0]`. The path of the root is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyPath(pub Vec<Step>);

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::Key(key) => {
                    let dot = if at == 0 { "" } else { "." };
                    let is_plain = |c: char| c.is_alphanumeric() || "_-$".contains(c);
                    if !key.is_empty() && key.chars().all(is_plain) {
                        write!(f, "{dot}{key}")?;
                    } else {
                        write!(f, "{dot}{}", Value::from(&**key))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A value and its position. It may hold secrets, so it does not implement `Debug`.
#[derive(Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) value: Content,
}

#[derive(Clone, PartialEq)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    /// `written` is the text before references were replaced, if there were any.
    Text {
        text: String,
        written: Option<String>,
    },
    List(Vec<Node>),
    Map(Vec<Member>),
}

/// One member of an object.
#[derive(Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: Arc<str>,
    /// The position of the key.
    pub(crate) origin: Origin,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn text(origin: Origin, text: String) -> Self {
        Self { origin, value: Content::Text { text, written: None } }
    }

    /// Removes every value except those at `path`, which has the keys of each depth.
    pub(crate) fn keep(&mut self, path: &[&[&str]]) {
        let (Some((first, rest)), Content::Map(members)) = (path.split_first(), &mut self.value) else {
            return;
        };
        members.retain(|member| first.contains(&&*member.key));
        members.iter_mut().for_each(|member| member.node.keep(rest));
    }

    /// The string; `None` for any other value.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Content::Text { text, .. } = &self.value { Some(text) } else { None }
    }

    /// The number; `None` for any other value.
    pub(crate) fn as_number(&self) -> Option<&Number> {
        if let Content::Number(number) = &self.value { Some(number) } else { None }
    }

    /// Removes the lines of all values.
    pub(crate) fn forget_lines(&mut self) {
        self.origin.forget_line();
        match &mut self.value {
            Content::List(items) => items.iter_mut().for_each(Self::forget_lines),
            Content::Map(members) => {
                for member in members {
                    member.origin.forget_line();
                    member.node.forget_lines();
                }
            }
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text { .. } => {}
        }
    }

    /// The node as JSON, with references replaced.
    pub(crate) fn to_json(&self) -> Value {
        self.json_with(&|text, _| text)
    }

    /// The node as JSON, with references as they were written. Safe to show to people.
    pub(crate) fn to_json_as_written(&self) -> Value {
        self.json_with(&|text, written| written.unwrap_or(text))
    }

    fn json_with(&self, choose: &impl for<'a> Fn(&'a str, Option<&'a str>) -> &'a str) -> Value {
        match &self.value {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text { text, written } => Value::from(choose(text, written.as_deref())),
            Content::List(items) => items.iter().map(|item| item.json_with(choose)).collect(),
            Content::Map(members) => {
                let member = |member: &Member| (member.key.to_string(), member.node.json_with(choose));
                Value::Object(members.iter().map(member).collect::<Map<_, _>>())
            }
        }
    }
}
