//! YAML, as nodes with positions: whole files, and the front matter of agents and commands. Aliases and tags are refused, because no
//! setting needs them.

use crate::{
    node::{Content, Member, Node, Origin},
    problem::Problems,
    syntax::builder::{Builder, Object},
};
use domain::limits::SETTINGS_DEPTH_MAX;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use std::{borrow::Cow, sync::Arc};

/// A key of Claude Code's commands whose value is a text for people, such as `[issue] [priority]`.
const FREE_TEXT: &str = "argument-hint";

/// The position of a character: `line` and `column` from 0, in the file that begins at `start`.
pub(crate) fn place(start: &Origin, line: usize, column: usize) -> Origin {
    let from_one = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    Origin { line: from_one(line), column: from_one(column), ..start.clone() }
}

/// Reads the `lines` between the fences; the first of them is line 2 of its file. Reports mistakes to `builder` and returns the
/// members before the first mistake.
pub(crate) fn front_matter(builder: &mut Builder, start: &Origin, lines: &[&str]) -> Object {
    let text = lines.iter().map(|line| with_quotes(line)).collect::<Vec<_>>().join("\n");
    let events = Parser::new_from_str(&text);
    // Line 1 is the opening fence.
    Document { builder, start, events, lines_before: 1, is_over: false }.root()
}

/// Parses `text`, which begins at `start`. An empty file is an empty object.
///
/// # Errors
/// One syntax error, or all values that exceed a limit.
pub(crate) fn parse(start: &Origin, text: &str) -> Result<Node, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::new();
    let events = Parser::new_from_str(text);
    let mut document = Document { builder: &mut builder, start, events, lines_before: 0, is_over: false };
    let root = document.root().node(start.clone());
    builder.problems.or(root)
}

/// Quotes the value of a top-level `key: value` if it contains a colon that YAML would read as another key, or is a hint about arguments. People
/// write such values, and OpenCode or Claude Code accept them.
fn with_quotes<'a>(line: &'a str) -> Cow<'a, str> {
    let is_name = |key: &str| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && key != "-"
    };
    let Some((key, value)) = line.split_once(": ").filter(|(key, _)| is_name(key)) else {
        return Cow::Borrowed(line);
    };
    let value = value.trim();
    let is_quoted = value.starts_with(['"', '\'', '|', '>', '#']);
    if key == FREE_TEXT && !value.is_empty() && !is_quoted {
        return Cow::Owned(format!("{key}: '{}'", value.replace('\'', "''")));
    }
    let is_plain = !value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#']);
    if is_plain && (value.contains(": ") || value.ends_with(':')) {
        return Cow::Owned(format!("{key}: '{}'", value.replace('\'', "''")));
    }
    Cow::Borrowed(line)
}

/// A document while its events arrive.
struct Document<'a, 'text> {
    builder: &'a mut Builder,
    start: &'a Origin,
    events: Parser<'text, StrInput<'text>>,
    /// The lines of the file before the text.
    lines_before: usize,
    /// Whether a mistake ended it.
    is_over: bool,
}

impl<'text> Document<'_, 'text> {
    fn root(&mut self) -> Object {
        while let Some((event, origin)) = self.next() {
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => break,
                Event::MappingStart(_, None) => {
                    let object = self.mapping(0);
                    self.end();
                    return object;
                }
                // Only comments.
                Event::Scalar(text, ScalarStyle::Plain, _, None) if is_null(&text) => break,
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => self.refuse(&origin, "\"key: value\"", "another value"),
            }
        }
        Object::default()
    }

    /// Refuses a second document, because it would have no effect.
    fn end(&mut self) {
        while let Some((event, origin)) = self.next() {
            match event {
                Event::Nothing | Event::DocumentEnd | Event::StreamEnd => {}
                Event::StreamStart
                | Event::DocumentStart(_)
                | Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => self.refuse(&origin, "one document", "another one"),
            }
        }
    }

    /// The next event with its position; `None` at the end, and after a mistake.
    fn next(&mut self) -> Option<(Event<'text>, Origin)> {
        if self.is_over {
            return None;
        }
        match self.events.next()? {
            Ok((event, span)) => Some((event, self.place(span.start))),
            Err(error) => {
                let origin = self.place(*error.marker());
                self.refuse(&origin, "", &format!("a mistake in the YAML: {}", error.info()));
                None
            }
        }
    }

    /// The position of a mark, whose lines count from 1.
    fn place(&self, mark: Marker) -> Origin {
        place(self.start, (mark.line() + self.lines_before).saturating_sub(1), mark.col())
    }

    fn refuse(&mut self, origin: &Origin, expected: &str, found: &str) {
        self.is_over = true;
        self.builder.complain(origin, expected.to_owned(), found.to_owned());
    }

    /// Reads the members of an object whose start event was read.
    fn mapping(&mut self, depth: usize) -> Object {
        let mut object = Object::default();
        while let Some((event, origin)) = self.next() {
            match event {
                Event::MappingEnd => break,
                Event::Scalar(key, _, _, None) => {
                    let Some((event, at)) = self.next() else { break };
                    let node = self.node(event, at, depth + 1);
                    self.builder.insert(&mut object, Member { key: Arc::from(&*key), origin, node });
                }
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..) => self.refuse(&origin, "a text as key", "another value"),
            }
        }
        object
    }

    /// Reads the items of a list whose start event was read.
    fn sequence(&mut self, depth: usize) -> Vec<Node> {
        let mut items = vec![];
        while let Some((event, origin)) = self.next() {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, origin, depth + 1));
        }
        items
    }

    /// Reads the value that begins with `event`.
    fn node(&mut self, event: Event<'text>, origin: Origin, depth: usize) -> Node {
        if !self.builder.count(&origin) {
            self.is_over = true;
        } else if depth > SETTINGS_DEPTH_MAX {
            self.refuse(&origin, &format!("at most {SETTINGS_DEPTH_MAX} levels"), "more");
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, _, None) => match plain(&text) {
                Content::Text { text, .. } => return self.builder.text(origin, text),
                value => value,
            },
            Event::Scalar(text, _, _, None) => return self.builder.text(origin, text.into_owned()),
            Event::SequenceStart(_, None) => Content::List(self.sequence(depth)),
            Event::MappingStart(_, None) => return self.mapping(depth).node(origin),
            Event::Alias(_) => {
                self.refuse(&origin, "a value", "an alias");
                Content::Null
            }
            Event::Scalar(_, _, _, Some(tag))
            | Event::SequenceStart(_, Some(tag))
            | Event::MappingStart(_, Some(tag)) => {
                self.refuse(&origin, "a value without a tag", &format!("{}{}", tag.handle, tag.suffix));
                Content::Null
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Content::Null,
        };
        Node { origin, value }
    }
}

/// An unquoted value, by YAML's core schema. Numbers are those of JSON.
fn plain(text: &str) -> Content {
    match text {
        "true" | "True" | "TRUE" => Content::Bool(true),
        "false" | "False" | "FALSE" => Content::Bool(false),
        _ if is_null(text) => Content::Null,
        _ => match text.parse() {
            Ok(number) => Content::Number(number),
            Err(_) => Content::Text { text: text.to_owned(), written: None },
        },
    }
}

fn is_null(text: &str) -> bool {
    ["", "~", "null", "Null", "NULL"].contains(&text)
}
