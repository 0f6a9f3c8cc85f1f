//! The front matter of agents and commands: the part of YAML that they need. `key: value`, nested by indentation; plain
//! and quoted texts, `|` and `>` blocks, numbers, booleans, comments. No lists, anchors, tags or `{…}`: they are refused.

use crate::{
    document::{Builder, Object},
    node::{Content, Entry, Node, Origin},
    problem::shown_text,
};
use domain::limits::SETTINGS_DEPTH_MAX;
use std::sync::Arc;

/// The place of a character: `line` and `column` from 0, in the file that begins at `start`.
pub(crate) fn place(start: &Origin, line: usize, column: usize) -> Origin {
    let from_one = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    Origin { line: from_one(line), column: from_one(column), ..start.clone() }
}

/// Reads the `lines` between the fences, the first of which is the second of its file. Mistakes go to `builder`.
pub(crate) fn parse(builder: &mut Builder, start: &Origin, lines: &[&str]) -> Object {
    let mut parser = Parser { builder, start, lines, at: 0 };
    parser.object(0, 0)
}

struct Parser<'a> {
    builder: &'a mut Builder,
    start: &'a Origin,
    lines: &'a [&'a str],
    /// The next line.
    at: usize,
}

impl<'a> Parser<'a> {
    /// The members at exactly `indent`; ends before a line that is further left. Each round takes a line.
    fn object(&mut self, indent: usize, depth: usize) -> Object {
        let mut object = Object::default();
        while let Some((line, found)) = self.peek() {
            if found < indent {
                break;
            }
            let at = self.at;
            self.at += 1;
            let origin = self.place(at, found);
            if found > indent || line[found..].starts_with('\t') {
                let expected = format!("{indent} spaces before a key");
                self.builder.complain(&origin, expected, shown_text(line));
                continue;
            }
            let Some((key, rest)) = split_key(&line[found..]) else {
                self.builder.complain(&origin, "\"key: value\"".to_owned(), shown_text(line));
                continue;
            };
            if !self.builder.count(&origin) {
                break;
            }
            let column = line.len() - rest.len();
            let node = self.value(at, column, (indent, depth));
            self.builder.insert(&mut object, Entry { key: Arc::from(key), origin, node });
        }
        object
    }

    /// The next line that says something, with its number of leading spaces.
    fn peek(&mut self) -> Option<(&'a str, usize)> {
        while let Some(line) = self.lines.get(self.at) {
            let text = line.trim();
            if !text.is_empty() && !text.starts_with('#') {
                return Some((line, indent_of(line)));
            }
            self.at += 1;
        }
        None
    }

    /// What stands after the colon of line `at`, from byte `column`, or below it.
    fn value(&mut self, at: usize, column: usize, (indent, depth): (usize, usize)) -> Node {
        let line = self.lines[at];
        let text = line[column..].trim_start();
        let origin = self.place(at, line.len() - text.len());
        if text.is_empty() || text.starts_with('#') {
            return match self.peek() {
                Some((_, below)) if below > indent && depth < SETTINGS_DEPTH_MAX => {
                    self.object(below, depth + 1).node(origin)
                }
                _ => Node { origin, value: Content::Null },
            };
        }
        if let Some(fold) = text.chars().next().filter(|c| "|>".contains(*c)) {
            let chomp = without_comment(&text[1..]);
            if !["", "-", "+"].contains(&chomp) {
                let expected = format!("{fold}, {fold}- or {fold}+");
                self.builder.complain(&origin, expected, shown_text(text));
            }
            let block = self.block(indent);
            let joined = if fold == '|' { block.join("\n") } else { folded(&block) };
            let end = if chomp == "-" || joined.is_empty() { "" } else { "\n" };
            return self.builder.text(origin, joined + end);
        }
        match scalar(text) {
            Ok(Content::Text { text, .. }) => self.builder.text(origin, text),
            Ok(value) => Node { origin, value },
            Err(expected) => {
                self.builder.complain(&origin, expected.to_owned(), shown_text(text));
                Node { origin, value: Content::Null }
            }
        }
    }

    /// The lines of a block below a key at `indent`, without their common indentation and the empty ones at the end.
    fn block(&mut self, indent: usize) -> Vec<&'a str> {
        let mut block = vec![];
        let mut common = None;
        while let Some(line) = self.lines.get(self.at) {
            let is_empty = line.trim().is_empty();
            let least = common.unwrap_or(indent + 1);
            if !is_empty && indent_of(line) < least {
                break;
            }
            if !is_empty {
                common = common.or(Some(indent_of(line)));
            }
            block.push(if is_empty { "" } else { &line[common.unwrap_or(0)..] });
            self.at += 1;
        }
        while block.last().is_some_and(|line| line.is_empty()) {
            block.pop();
        }
        block
    }

    /// The place of byte `column` of line `at`.
    fn place(&self, at: usize, column: usize) -> Origin {
        // The fence stands above.
        place(self.start, at + 1, self.lines[at][..column].chars().count())
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The key of `key: value`, and what comes after the colon.
fn split_key(text: &str) -> Option<(String, &str)> {
    if let Some((key, rest)) = quoted(text) {
        return Some((key?, rest.trim_start().strip_prefix(':')?));
    }
    if text.starts_with("- ") || text == "-" {
        return None;
    }
    let ends = |at: &usize| text[at + 1..].chars().next().is_none_or(|c| c == ' ' || c == '\t');
    let at = text.match_indices(':').map(|(at, _)| at).find(ends)?;
    let key = text[..at].trim();
    (!key.is_empty()).then(|| (key.to_owned(), &text[at + 1..]))
}

/// What a text in quotes says, `None` inside if it is not understood, and what follows. `None` if it has no quotes.
fn quoted(text: &str) -> Option<(Option<String>, &str)> {
    let quote = text.chars().next().filter(|c| "\"'".contains(*c))?;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        let is_doubled = || chars.clone().next().is_some_and(|(_, next)| next == '\'');
        if c == '\\' && quote == '"' || c == quote && quote == '\'' && is_doubled() {
            chars.next();
        } else if c == quote {
            let (inside, rest) = (&text[..=at], &text[at + 1..]);
            let value = match quote {
                // What YAML escapes beyond JSON is rare enough to be refused.
                '"' => serde_json::from_str(inside).ok(),
                _ => Some(inside[1..at].replace("''", "'")),
            };
            return Some((value, rest));
        }
    }
    Some((None, ""))
}

/// A value on one line, or what was expected.
fn scalar(text: &str) -> Result<Content, &'static str> {
    if let Some((value, rest)) = quoted(text) {
        let value = value.ok_or("a text in quotes, with the escapes of JSON")?;
        if !without_comment(rest).is_empty() {
            return Err("nothing after the closing quote");
        }
        return Ok(Content::Text { text: value, written: None });
    }
    if text.starts_with(['[', '{', '&', '*', '!', '%', '@', '`']) {
        return Err("a plain text, or one in quotes");
    }
    let text = without_comment(text);
    Ok(match text {
        "null" | "~" => Content::Null,
        "true" => Content::Bool(true),
        "false" => Content::Bool(false),
        _ => match text.parse() {
            Ok(number) => Content::Number(number),
            Err(_) => Content::Text { text: text.to_owned(), written: None },
        },
    })
}

/// A comment begins with `#` at the start or after white space.
fn without_comment(text: &str) -> &str {
    let begins = |at: &usize| text[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let end = text.match_indices('#').map(|(at, _)| at).find(begins).unwrap_or(text.len());
    text[..end].trim()
}

/// The lines of a `>` block: a single line end is a space, an empty line is one.
fn folded(block: &[&str]) -> String {
    let mut text = String::new();
    for (at, line) in block.iter().enumerate() {
        let is_joined = at > 0 && !line.is_empty() && !block[at - 1].is_empty();
        text.push_str(if is_joined { " " } else { "" });
        text.push_str(if line.is_empty() { "\n" } else { line });
    }
    text
}
