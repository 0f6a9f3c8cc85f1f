//! A session's stream as terminal text: a state machine without IO. Text appears as it streams, one part after the
//! other in the order in which they began; a tool call is one line.

use crate::{
    commands::requests::answer::{self, Open},
    stream::{
        item::{Delta, Event, Item},
        tool_call,
    },
    terminal::{
        paint::{Paint, harmless, one_line},
        show,
    },
};
use rpc::v1::ErrorCode;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// Characters of a tool call's description.
const TITLE_CHARS: usize = 90;

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct Renderer {
    paint: Paint,
    /// Whether to show the output of tools.
    outputs: bool,
    /// Role by message id; a part's message is always known before the part.
    roles: HashMap<String, String>,
    /// Each text or reasoning part by its id.
    texts: HashMap<String, Text>,
    /// The parts that are not shown completely, in the order in which they began; only the first is being written.
    waiting: VecDeque<String>,
    /// The last state shown of each tool call.
    tools: HashMap<String, String>,
    /// The text part that ends at the cursor, if there is one.
    open: Option<String>,
    /// The last error of the session that was shown.
    error: String,
    at_line_start: bool,
    out: String,
}

#[derive(Debug, Default)]
struct Text {
    reasoning: bool,
    /// The text received so far.
    text: String,
    /// Bytes of `text` that were written.
    written: usize,
    ended: bool,
}

impl Renderer {
    pub(crate) fn new(paint: Paint) -> Self {
        Self {
            paint,
            outputs: false,
            roles: HashMap::new(),
            texts: HashMap::new(),
            waiting: VecDeque::new(),
            tools: HashMap::new(),
            open: None,
            error: String::new(),
            at_line_start: true,
            out: String::new(),
        }
    }

    /// Also shows the output of tools.
    pub(crate) fn with_outputs(self, outputs: bool) -> Self {
        Self { outputs, ..self }
    }

    /// Returns the text to write to the terminal for `item`; often empty.
    pub(crate) fn feed(&mut self, item: &Item) -> String {
        match item {
            Item::Event(event) => self.event(event),
            Item::Delta(delta) => self.delta(delta),
            Item::Notice(_) | Item::Heartbeat(_) => {}
            Item::Reconnecting(reconnect) => {
                let text = format!("· {}", reconnect.line());
                self.note(&text);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Returns the text that ends the last line, before other output is written.
    pub(crate) fn finish(&mut self) -> String {
        self.end_line();
        std::mem::take(&mut self.out)
    }

    /// Returns the text to write for a request of a subtask.
    pub(crate) fn subtask_asks(&mut self, open: &Open) -> String {
        let what = format!("subtask {}: {}", one_line(open.session_id(), TITLE_CHARS), open.words());
        self.asked(&what, &open.command());
        std::mem::take(&mut self.out)
    }

    /// Whether the next text begins a line.
    pub(crate) fn is_at_line_start(&self) -> bool {
        self.at_line_start
    }

    /// Whether the error `message` of the session was shown.
    pub(crate) fn told(&self, message: &str) -> bool {
        self.error == message
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
                self.note(&format!("· attempt {} failed, retrying: {why}", status["attempt"]));
            }
            "session.compacted" => self.note("· the conversation so far was summarized"),
            "session.error" => {
                let error = &properties["error"];
                let message = text_of(&error["data"]["message"]);
                let message = if message.is_empty() { text_of(&error["name"]) } else { message };
                if error["data"]["ref"] == ErrorCode::SessionQuarantined.as_str() && self.told(&message) {
                    return;
                }
                let line = self.paint.red(&format!("✗ {}", harmless(&message)));
                self.line(&line);
                self.error = message;
            }
            "permission.asked" => {
                let permission = text_of(&properties["permission"]);
                let what = answer::may_it(&permission, &words(&properties["patterns"]));
                self.asked(&what, &answer::command(&text_of(&properties["id"]), "once"));
            }
            "question.asked" => {
                let questions = properties["questions"].as_array().map_or(1, Vec::len).max(1);
                let answers = vec!["\"…\""; questions].join(" ");
                let command = answer::command(&text_of(&properties["id"]), &answers);
                self.asked(&text_of(&properties["questions"][0]["question"]), &command);
            }
            "flotilla.session.waiting" => self.waiting(event),
            "flotilla.session.quarantined" => {
                let reason = text_of(&properties["reason"]);
                let line = self.paint.red(&format!("✗ quarantined: {}", one_line(&reason, TITLE_CHARS)));
                self.line(&line);
                // The session's error says the same to clients that do not know quarantine.
                self.error = reason;
            }
            "flotilla.snapshot.missed" => {
                self.note("· no snapshot shows what this step changed; it cannot be reverted alone");
            }
            "flotilla.workspace.restarted" => {
                self.note("· the workspace was lost; the session continues with the files of its source");
            }
            "flotilla.session.released" => self.note("· an operator released the session"),
            "flotilla.loop.started" if properties["attempt"].as_i64().is_some_and(|attempt| attempt > 1) => {
                self.handover(&properties["worker"]);
            }
            _ => {}
        }
    }

    /// A request to people, with the command that answers it.
    fn asked(&mut self, what: &str, command: &str) {
        let what = self.paint.yellow(&format!("? needs a human: {}", one_line(what, TITLE_CHARS)));
        self.line(&format!("{what}   {command}"));
    }

    fn waiting(&mut self, event: &Event) {
        let reason = text_of(&event.properties["reason"]);
        let what = match reason.as_str() {
            "permission" => "for a permission",
            "question" => "for an answer",
            "budget" => "for a larger budget",
            "children" => "for its subtasks",
            "back_off" => "before the next model call",
            other => &format!("({})", one_line(other, TITLE_CHARS)),
        };
        let until = event.properties["until"].as_i64().map(|until| until.saturating_sub(event.at_ms));
        let at_most = until.map(|left| format!(", {} at most", show::span(left))).unwrap_or_default();
        self.note(&format!("· waits {what}{at_most}"));
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
        if part["synthetic"] == true || text.is_empty() || self.texts.contains_key(&id) {
            return;
        }
        let quoted: Vec<_> = harmless(&text).lines().map(|line| format!("> {line}")).collect();
        let quoted = self.paint.bold(&quoted.join("\n"));
        self.line(&quoted);
        self.texts.insert(id, Text::default());
    }

    /// Takes a part's whole text, which includes deltas that were missed.
    fn text(&mut self, id: String, part: &Value, reasoning: bool) {
        let text = text_of(&part["text"]);
        if !self.texts.contains_key(&id) {
            self.texts.insert(id.clone(), Text { reasoning, ..Text::default() });
            self.waiting.push_back(id.clone());
        }
        let old_text = self.texts.get(&id).map(|known| known.text.as_str()).unwrap_or_default();
        // Another attempt wrote a different text: the text on the screen is obsolete.
        let again = !text.starts_with(old_text) && !old_text.starts_with(&text);
        if again {
            self.note("· written again:");
        }
        let Some(part_text) = self.texts.get_mut(&id) else { return };
        part_text.ended = !part["time"]["end"].is_null();
        if again {
            part_text.written = 0;
        }
        if again || text.len() > part_text.text.len() {
            part_text.text = text;
        }
        self.write_waiting(id);
    }

    fn delta(&mut self, delta: &Delta) {
        if delta.field != "text" {
            return;
        }
        // A part that is not known yet is not shown: its own event carries the text.
        let Some(part_text) = self.texts.get_mut(&delta.part_id) else { return };
        let Ok(offset) = usize::try_from(delta.offset_bytes) else { return };
        // The part's next event repairs a gap (an offset that is too large).
        let Some(overlap) = part_text.text.len().checked_sub(offset) else { return };
        let Some(rest) = delta.text.get(overlap..).filter(|rest| !rest.is_empty()) else { return };
        part_text.text.push_str(rest);
        // In a live stream, a part is over when the next one has text: the event that ends reasoning may arrive only
        // at the end of the answer.
        while self.waiting.contains(&delta.part_id)
            && let Some(first) = self.waiting.pop_front_if(|first| *first != delta.part_id)
        {
            self.write_rest(&first);
        }
        self.write_waiting(delta.part_id.clone());
    }

    fn removed(&mut self, id: &str) {
        self.waiting.retain(|waiting| waiting != id);
        if self.texts.remove(id).is_some_and(|text| text.written > 0) {
            self.note("· the attempt above was discarded");
        }
    }

    /// Writes the text that may be written after `id` received more: the first waiting part, and the parts behind
    /// finished ones.
    fn write_waiting(&mut self, id: String) {
        let late = self.texts.get(&id).is_some_and(|text| text.written < text.text.len());
        if late && !self.waiting.contains(&id) {
            self.waiting.push_back(id);
        }
        while let Some(first) = self.waiting.front().cloned() {
            self.write_rest(&first);
            if self.texts.get(&first).is_some_and(|text| !text.ended) {
                break;
            }
            self.waiting.pop_front();
            if self.open == Some(first) {
                self.close();
            }
        }
    }

    fn write_rest(&mut self, id: &str) {
        let Some(part) = self.texts.get_mut(id) else { return };
        let rest = harmless(part.text.get(part.written..).unwrap_or_default());
        if rest.is_empty() {
            return;
        }
        part.written = part.text.len();
        let reasoning = part.reasoning;
        if self.open.as_deref() != Some(id) {
            self.close();
            self.open = Some(id.to_owned());
        }
        self.at_line_start = rest.ends_with('\n');
        self.out.push_str(&if reasoning { self.paint.dim(&rest) } else { rest });
    }

    fn tool(&mut self, id: String, part: &Value) {
        let state = &part["state"];
        let status = text_of(&state["status"]);
        let subtask = tool_call::subtask(state);
        let shown_as = format!("{status}{subtask}");
        if self.tools.get(&id).is_some_and(|previous| *previous == shown_as) {
            return;
        }
        let name = one_line(&text_of(&part["tool"]), TITLE_CHARS);
        let title = format!("{}{subtask}", one_line(&tool_call::title(state), TITLE_CHARS));
        match status.as_str() {
            "completed" => {
                let mark = self.paint.green("✓");
                self.line(&format!("{mark} {}  {title}{}", self.paint.cyan(&name), self.took(state)));
                if self.outputs {
                    self.line(harmless(&tool_call::shown_output(state)).trim_end());
                } else if let Some(failure) = tool_call::start_failure(state) {
                    self.line(&self.paint.red(&harmless(failure)));
                }
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
        self.tools.insert(id, shown_as);
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

    /// Writes all waiting text and ends the line; a part without any text keeps its position.
    fn end_line(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            self.write_rest(&id);
            if self.texts.get(&id).is_some_and(|text| text.written == 0 && !text.ended) {
                self.waiting.push_back(id);
            }
        }
        self.close();
    }

    fn close(&mut self) {
        if !self.at_line_start {
            self.out.push('\n');
        }
        self.at_line_start = true;
        self.open = None;
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn words(value: &Value) -> String {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// Formats a duration for people.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests;
