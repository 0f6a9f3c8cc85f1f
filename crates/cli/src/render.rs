//! A session's stream as terminal text: a state machine without IO. Text appears as it streams; a tool call is one line.

use crate::{
    item::{Delta, Event, Item},
    paint::{Paint, harmless, one_line},
};
use serde_json::Value;
use std::collections::HashMap;

/// Characters of a tool call's description.
const TITLE_CHARS: usize = 90;
/// Bytes of a new part that wait for the rest of the one before it, which may come a moment later.
const HELD_BYTES: usize = 64;

/// What a terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// A line can be replaced: running tools are shown.
    Terminal,
    /// A file or a pipe: only what is final is written.
    Stream,
}

/// The state of what is on the screen.
#[derive(Debug)]
pub(crate) struct Renderer {
    paint: Paint,
    screen: Screen,
    /// Role by message id; a part's message is always known before the part.
    roles: HashMap<String, String>,
    /// What was shown of each text part.
    shown: HashMap<String, Shown>,
    /// The last state shown of each tool call.
    tools: HashMap<String, String>,
    /// The text part that the cursor stands behind, if it stands behind one.
    open: Option<String>,
    /// The beginning of the next part while the open one has not ended: its id, whether it is reasoning, its text.
    held: Option<(String, bool, String)>,
    at_line_start: bool,
    /// Whether the last line is one that will be replaced.
    transient: bool,
    out: String,
}

#[derive(Debug)]
struct Shown {
    reasoning: bool,
    text: String,
}

impl Renderer {
    pub(crate) fn new(paint: Paint, screen: Screen) -> Self {
        Self {
            paint,
            screen,
            roles: HashMap::new(),
            shown: HashMap::new(),
            tools: HashMap::new(),
            open: None,
            held: None,
            at_line_start: true,
            transient: false,
            out: String::new(),
        }
    }

    /// Gives what to write to the terminal for `item`; often nothing.
    pub(crate) fn feed(&mut self, item: &Item) -> String {
        match item {
            Item::Event(event) => self.event(event),
            Item::Delta(delta) => self.delta(delta),
            Item::Heartbeat(_) => {}
            Item::Reconnecting(tries) => {
                let text = format!("· connection lost, trying again ({tries})");
                self.note(&text);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Gives what ends the last line, before somebody else writes.
    pub(crate) fn finish(&mut self) -> String {
        self.end_line();
        std::mem::take(&mut self.out)
    }

    fn event(&mut self, event: &Event) {
        let properties = &event.properties;
        match event.kind.as_str() {
            "message.updated" => {
                let info = &properties["info"];
                self.roles.insert(text_of(&info["id"]), text_of(&info["role"]));
            }
            "message.part.updated" => self.part(&properties["part"]),
            "message.part.removed" => self.removed(&text_of(&properties["partID"])),
            "session.status" if properties["status"]["type"] == "retry" => {
                let status = &properties["status"];
                let why = one_line(&text_of(&status["message"]), TITLE_CHARS);
                self.note(&format!("· attempt {} failed, trying again: {why}", status["attempt"]));
            }
            "session.error" => {
                let error = &properties["error"];
                let message = text_of(&error["data"]["message"]);
                let message = if message.is_empty() { text_of(&error["name"]) } else { message };
                let line = self.paint.red(&format!("✗ {}", harmless(&message)));
                self.line(&line);
            }
            "permission.asked" => {
                let what =
                    format!("{} {}", text_of(&properties["permission"]), words(&properties["patterns"]));
                let line = self
                    .paint
                    .yellow(&format!("? needs a human: may it use {}", one_line(&what, TITLE_CHARS)));
                self.line(&line);
            }
            "question.asked" => {
                let question = text_of(&properties["questions"][0]["question"]);
                let line =
                    self.paint.yellow(&format!("? needs a human: {}", one_line(&question, TITLE_CHARS)));
                self.line(&line);
            }
            "flotilla.handover" => self.handover(&properties["worker"]),
            "flotilla.loop.started" if properties["attempt"].as_i64().is_some_and(|attempt| attempt > 1) => {
                self.handover(&properties["worker"]);
            }
            _ => {}
        }
    }

    fn handover(&mut self, worker: &Value) {
        let text = format!("· worker {} took over", one_line(&text_of(worker), TITLE_CHARS));
        self.note(&text);
    }

    fn part(&mut self, part: &Value) {
        let id = text_of(&part["id"]);
        match part["type"].as_str() {
            Some("text")
                if self.roles.get(&text_of(&part["messageID"])).is_some_and(|role| role == "user") =>
            {
                self.prompt(id, part);
            }
            Some("text") => self.text(id, part, false),
            Some("reasoning") => self.text(id, part, true),
            Some("tool") => self.tool(id, part),
            _ => {}
        }
    }

    fn prompt(&mut self, id: String, part: &Value) {
        let text = text_of(&part["text"]);
        if part["synthetic"] == true || text.is_empty() || self.shown.contains_key(&id) {
            return;
        }
        let quoted: Vec<_> = harmless(&text).lines().map(|line| format!("> {line}")).collect();
        let quoted = self.paint.bold(&quoted.join("\n"));
        self.line(&quoted);
        self.shown.insert(id, Shown { reasoning: false, text });
    }

    /// Shows what is not yet shown of a part's whole text: repairs what deltas missed.
    fn text(&mut self, id: String, part: &Value, reasoning: bool) {
        let text = text_of(&part["text"]);
        let shown = self.shown.entry(id.clone()).or_insert(Shown { reasoning, text: String::new() });
        if let Some(rest) = text.strip_prefix(shown.text.as_str()) {
            let rest = rest.to_owned();
            shown.text = text;
            self.stream(&id, reasoning, &rest);
        } else if !shown.text.starts_with(&text) {
            // Another attempt wrote something else: what is on the screen no longer counts.
            shown.text.clone_from(&text);
            self.note("· written again:");
            self.stream(&id, reasoning, &text);
        }
        if !part["time"]["end"].is_null() && self.open.as_deref() == Some(id.as_str()) {
            self.close();
        }
    }

    fn delta(&mut self, delta: &Delta) {
        if delta.field != "text" {
            return;
        }
        // A part that is not known yet is not shown: its own event brings the text.
        let Some(shown) = self.shown.get_mut(&delta.part_id) else { return };
        let Ok(offset) = usize::try_from(delta.offset_bytes) else { return };
        // A gap (offset too large) is repaired by the part's next event.
        let Some(known) = shown.text.len().checked_sub(offset) else { return };
        let Some(rest) = delta.text.get(known..) else { return };
        shown.text.push_str(rest);
        let (reasoning, rest) = (shown.reasoning, rest.to_owned());
        self.stream(&delta.part_id, reasoning, &rest);
    }

    fn removed(&mut self, id: &str) {
        if self.shown.remove(id).is_some_and(|shown| !shown.text.is_empty()) {
            self.note("· the attempt above was given up");
        }
    }

    fn stream(&mut self, id: &str, reasoning: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open.as_deref() == Some(id) {
            self.print(reasoning, text);
            return;
        }
        if self.held.as_ref().is_some_and(|(held, ..)| held != id) {
            self.close();
        }
        let (_, _, held) = self.held.get_or_insert_with(|| (id.to_owned(), reasoning, String::new()));
        held.push_str(text);
        if self.open.is_none() || held.len() >= HELD_BYTES {
            self.close();
        }
    }

    fn print(&mut self, reasoning: bool, text: &str) {
        let clean = harmless(text);
        self.at_line_start = clean.ends_with('\n');
        self.out.push_str(&if reasoning { self.paint.dim(&clean) } else { clean });
    }

    fn tool(&mut self, id: String, part: &Value) {
        let state = &part["state"];
        let status = text_of(&state["status"]);
        if self.tools.get(&id).is_some_and(|shown| *shown == status) {
            return;
        }
        let name = one_line(&text_of(&part["tool"]), TITLE_CHARS);
        let title = one_line(&title(state), TITLE_CHARS);
        match status.as_str() {
            "running" if self.screen == Screen::Terminal => {
                self.end_line();
                let line = self.paint.dim(&format!("… {name}  {title}"));
                self.out.push_str(&line);
                self.transient = true;
                self.at_line_start = false;
            }
            "completed" => {
                let mark = self.paint.green("✓");
                self.line(&format!("{mark} {}  {title}{}", self.paint.cyan(&name), self.took(state)));
            }
            "error" => {
                let mark = self.paint.red("✗");
                let why = one_line(&text_of(&state["error"]), TITLE_CHARS);
                self.line(&format!(
                    "{mark} {}  {title}{}  {}",
                    self.paint.cyan(&name),
                    self.took(state),
                    self.paint.red(&why)
                ));
            }
            _ => return,
        }
        self.tools.insert(id, status);
    }

    fn took(&self, state: &Value) -> String {
        let (Some(start), Some(end)) = (state["time"]["start"].as_i64(), state["time"]["end"].as_i64())
        else {
            return String::new();
        };
        self.paint.dim(&format!("  {}", duration(end.saturating_sub(start).max(0).unsigned_abs())))
    }

    fn note(&mut self, text: &str) {
        let text = self.paint.dim(text);
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Ends what is on the screen, with what was held back for it.
    fn end_line(&mut self) {
        self.close();
        if self.open.is_some() {
            self.close();
        }
    }

    /// Ends the open part and shows the beginning of the one that was held back.
    fn close(&mut self) {
        if self.transient {
            self.out.push_str("\r\x1b[K");
            self.transient = false;
        } else if !self.at_line_start {
            self.out.push('\n');
        }
        self.at_line_start = true;
        self.open = None;
        if let Some((id, reasoning, text)) = self.held.take() {
            self.open = Some(id);
            self.print(reasoning, &text);
        }
    }
}

/// Gives what a tool call does: its title, or the argument that says most.
fn title(state: &Value) -> String {
    let title = text_of(&state["title"]);
    if !title.is_empty() {
        return title;
    }
    let input = &state["input"];
    ["description", "command", "filePath", "pattern", "path", "prompt"]
        .iter()
        .map(|key| text_of(&input[*key]))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn words(value: &Value) -> String {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// Gives a duration for people.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests;
