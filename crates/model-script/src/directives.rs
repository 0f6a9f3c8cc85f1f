//! Directives in a prompt. The parent's doc shows the grammar.

use super::limits::{DELAY_MAX_MS, STEPS_MAX};
use super::script::{Fault, FaultKind, Item, Step, Usage};
use serde_json::Value;

const WORDS: [&str; 15] = [
    "text", "reason", "tool", "tools", "step", "delay", "chunk", "finish", "usage", "status", "cut", "stall",
    "html", "garbage", "blind",
];

/// Whether `text` contains a directive.
pub(super) fn has_any(text: &str) -> bool {
    text.lines().any(|line| split(line).is_some())
}

/// The steps that the directives of `text` define; empty if it has none.
///
/// # Errors
/// The line and its problem.
pub(super) fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut reader = Reader::default();
    for line in text.lines() {
        if let Some((word, rest)) = split(line) {
            reader.take(word, rest).map_err(|reason| format!("`{}`: {reason}", line.trim()))?;
            if reader.steps.len() > STEPS_MAX {
                return Err(format!("more than {STEPS_MAX} steps"));
            }
        }
    }
    Ok(reader.end())
}

fn split(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim().strip_prefix('@')?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    WORDS.into_iter().find(|known| *known == word).map(|known| (known, rest.trim()))
}

#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    state: State,
}

/// How the next directive continues.
#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum State {
    /// The step is still open.
    #[default]
    Open,
    /// `@tools`: the step accepts only further calls.
    Group,
    /// A call ended the step.
    Ended,
}

impl Reader {
    fn take(&mut self, word: &'static str, rest: &str) -> Result<(), String> {
        match word {
            "step" => {
                self.begin();
                return Ok(());
            }
            "tools" => {
                if self.state != State::Open || self.steps.is_empty() {
                    self.begin();
                }
                self.state = State::Group;
                return Ok(());
            }
            "tool" => return self.tool(rest),
            _ => {}
        }
        // A group ends with its last call. Before its first call it still accepts settings.
        let has_calls = self.step().items.iter().any(|item| matches!(item, Item::Tool { .. }));
        if self.state == State::Ended || (self.state == State::Group && has_calls) {
            self.begin();
        }
        self.set(word, rest)
    }

    fn set(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let step = self.step();
        match word {
            "text" => match step.items.last_mut() {
                Some(Item::Text(text)) => {
                    text.push('\n');
                    text.push_str(rest);
                }
                _ => step.items.push(Item::Text(rest.to_owned())),
            },
            "reason" => step.items.push(Item::Reasoning(rest.to_owned())),
            "delay" => {
                step.delay_ms = number(rest).filter(|ms| *ms <= DELAY_MAX_MS).ok_or_else(delay_text)?
            }
            "chunk" => {
                let chars = number(rest).filter(|chars| *chars > 0).ok_or("needs a number above zero")?;
                step.chunk_chars = usize::try_from(chars).unwrap_or(usize::MAX);
            }
            "finish" if !rest.is_empty() => step.finish = Some(rest.to_owned()),
            "finish" => return Err("needs a reason".to_owned()),
            "usage" => step.usage = Some(usage(rest)?),
            fault => {
                let fault = self::fault(fault, rest)?;
                step.faults.push(fault);
            }
        }
        Ok(())
    }

    fn tool(&mut self, rest: &str) -> Result<(), String> {
        let (name, input) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
        if name.is_empty() {
            return Err("needs the name of a tool".to_owned());
        }
        let input: Value =
            serde_json::from_str(input.trim()).map_err(|error| format!("the input is not JSON: {error}"))?;
        if self.state == State::Ended {
            self.begin();
        }
        self.step().items.push(Item::Tool { name: name.to_owned(), input });
        if self.state == State::Open {
            self.state = State::Ended;
        }
        Ok(())
    }

    fn begin(&mut self) {
        let before = self.steps.last();
        let step = Step {
            chunk_chars: before.map_or_else(|| Step::default().chunk_chars, |step| step.chunk_chars),
            delay_ms: before.map_or(0, |step| step.delay_ms),
            ..Step::default()
        };
        self.steps.push(step);
        self.state = State::Open;
    }

    fn step(&mut self) -> &mut Step {
        if self.steps.is_empty() {
            self.begin();
        }
        // `begin` has ensured that a step exists.
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    fn end(mut self) -> Vec<Step> {
        // Faults and settings after the last call apply to its step.
        if self.steps.len() > 1
            && let Some(last) = self.steps.pop_if(|last| last.items.is_empty())
            && let Some(before) = self.steps.last_mut()
        {
            before.faults.extend(last.faults);
            before.finish = last.finish.or(before.finish.take());
            before.usage = last.usage.or(before.usage);
        }
        self.steps
    }
}

fn delay_text() -> String {
    format!("needs milliseconds, at most {DELAY_MAX_MS}")
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn usage(rest: &str) -> Result<Usage, String> {
    let mut usage = Usage::default();
    for word in rest.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=number"))?;
        let value = number(value).ok_or_else(|| format!("`{word}` is not key=number"))?;
        match key {
            "input" => usage.input = value,
            "output" => usage.output = value,
            "reasoning" => usage.reasoning = value,
            "cache_read" => usage.cache_read = value,
            "cache_write" => usage.cache_write = value,
            _ => {
                return Err(format!(
                    "`{key}` must be one of input, output, reasoning, cache_read, cache_write"
                ));
            }
        }
    }
    Ok(usage)
}

fn fault(word: &str, rest: &str) -> Result<Fault, String> {
    let mut pieces = None;
    let (mut times, mut retry_after_ms, mut retry_after, mut is_clean) = (None, None, None, false);
    for option in rest.split_whitespace() {
        let needs_number = || format!("`{option}` needs a number");
        match option.split_once('=') {
            Some(("times", value)) => times = Some(number(value).ok_or_else(needs_number)?),
            Some(("retry-after-ms", value)) => retry_after_ms = Some(number(value).ok_or_else(needs_number)?),
            Some(("retry-after", value)) => retry_after = Some(value.to_owned()),
            None if option == "clean" && word == "cut" => is_clean = true,
            None if pieces.is_none() => pieces = Some(number(option).ok_or_else(needs_number)?),
            Some(_) | None => return Err(format!("does not know `{option}`")),
        }
    }
    let count = pieces.map(|pieces| usize::try_from(pieces).unwrap_or(usize::MAX));
    let kind = match word {
        "status" => {
            let status =
                pieces.and_then(|status| u16::try_from(status).ok()).filter(|is| (400..600).contains(is));
            let status = status.ok_or("needs a status from 400 to 599")?;
            FaultKind::Status { status, retry_after_ms, retry_after }
        }
        "cut" => FaultKind::Cut { pieces: count.unwrap_or_default(), is_clean },
        "stall" => FaultKind::Stall { pieces: count },
        "html" => FaultKind::Html,
        "blind" => FaultKind::Blind,
        _ => FaultKind::Garbage { pieces: count.unwrap_or_default() },
    };
    Ok(Fault { kind, times })
}
