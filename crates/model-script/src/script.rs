//! The script: rules, steps and faults, read from TOML. The parent's doc shows the shape.

use super::journal::Journal;
use super::limits::{CHUNK_CHARS, DELAY_MAX_MS, STEPS_MAX};
use serde::Deserialize;
use serde_json::Value;

/// The answer when a conversation continues after the last step.
const CLOSING: &str = "That was the last step of the script.";

/// A script and the journal of its requests. Clones share the journal.
#[derive(Debug, Clone)]
pub struct Script {
    pub(super) rules: Vec<Rule>,
    pub(super) closing: String,
    pub(super) journal: Journal,
}

/// Why a text is not a valid script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The text is not TOML, or does not have this shape; with the line.
    #[error("read the model script")]
    Toml(#[from] toml::de::Error),
    /// A number exceeds its bound.
    #[error("rule {rule}, step {step} of the model script: {text}")]
    Bound {
        /// Counted from 0.
        rule: usize,
        /// Counted from 0.
        step: usize,
        /// The exceeded bound.
        text: String,
    },
}

impl Default for Script {
    /// A script without rules: only directives have an effect.
    fn default() -> Self {
        Self { rules: Vec::new(), closing: CLOSING.to_owned(), journal: Journal::default() }
    }
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// `Toml` and `Bound`.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let file: File = toml::from_str(text)?;
        for (rule_at, rule) in file.rule.iter().enumerate() {
            let bound = |step: usize, text: String| Err(ScriptError::Bound { rule: rule_at, step, text });
            if rule.step.len() > STEPS_MAX {
                return bound(STEPS_MAX, format!("more than {STEPS_MAX} steps"));
            }
            for (at, step) in rule.step.iter().enumerate() {
                if step.delay_ms > DELAY_MAX_MS {
                    return bound(at, format!("delay_ms is more than {DELAY_MAX_MS}"));
                }
            }
        }
        let rules = file.rule.into_iter().map(Rule::from_file).collect();
        Ok(Self {
            rules,
            closing: file.closing.unwrap_or_else(|| CLOSING.to_owned()),
            journal: Journal::default(),
        })
    }

    /// The demonstration script. It fixes the failing test of the sample repository.
    ///
    /// # Errors
    /// None in practice: a test parses the script.
    pub fn demo() -> Result<Self, ScriptError> {
        Self::parse(include_str!("demo.toml"))
    }

    /// The journal of requests. The first call of this function starts the recording.
    pub fn journal(&self) -> Journal {
        self.journal.record();
        self.journal.clone()
    }

    /// The steps of the first rule that matches `prompt`.
    pub(super) fn find(&self, prompt: &str) -> Option<&[Step]> {
        let prompt = prompt.to_lowercase();
        let is_match = |rule: &&Rule| rule.words.iter().all(|word| prompt.contains(word));
        self.rules.iter().find(is_match).map(|rule| rule.steps.as_slice())
    }
}

/// Steps for the prompts that contain all of the words.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    /// In lower case.
    words: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) items: Vec<Item>,
    pub(super) faults: Vec<Fault>,
    pub(super) finish: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) chunk_chars: usize,
    pub(super) delay_ms: u64,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            faults: Vec::new(),
            finish: None,
            usage: None,
            chunk_chars: CHUNK_CHARS,
            delay_ms: 0,
        }
    }
}

impl Step {
    /// A step that says `text`.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { items: vec![Item::Text(text.into())], ..Self::default() }
    }

    /// The fault of the `attempt`-th attempt, counted from 0. Faults with `times` take effect one after the other.
    pub(super) fn fault(&self, attempt: u64) -> Option<&FaultKind> {
        let mut from = 0;
        self.faults.iter().find_map(|fault| {
            let Some(times) = fault.times else { return Some(&fault.kind) };
            from += times;
            (attempt < from).then_some(&fault.kind)
        })
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    Text(String),
    Reasoning(String),
    Tool { name: String, input: Value },
}

/// A fault of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    /// Number of attempts that it hits; `None` means all.
    pub(super) times: Option<u64>,
}

/// The kind of fault. Numbers are the pieces that are sent before it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FaultKind {
    Status {
        status: u16,
        retry_after_ms: Option<u64>,
        retry_after: Option<String>,
    },
    Cut {
        pieces: usize,
        is_clean: bool,
    },
    /// `None`: the server does not even send the head of an answer.
    Stall {
        pieces: Option<usize>,
    },
    Html,
    Garbage {
        pieces: usize,
    },
    /// Refuses a request with pictures or documents, as a provider does that cannot read one of them.
    Blind,
}

/// Token counts to report. They do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    closing: Option<String>,
    #[serde(default)]
    rule: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    #[serde(default, rename = "match")]
    words: Words,
    #[serde(default)]
    step: Vec<FileStep>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    All(Vec<String>),
}

impl Default for Words {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    #[serde(default)]
    delay_ms: u64,
    chunk: Option<usize>,
    reasoning: Option<String>,
    text: Option<String>,
    #[serde(default)]
    tool: Vec<FileTool>,
    finish: Option<String>,
    usage: Option<Usage>,
    #[serde(default)]
    fault: Vec<FileFault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTool {
    name: String,
    #[serde(default = "no_input")]
    input: Value,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum FileFault {
    Status {
        status: u16,
        retry_after_ms: Option<u64>,
        retry_after: Option<String>,
        times: Option<u64>,
    },
    Cut {
        cut: usize,
        #[serde(default)]
        clean: bool,
        times: Option<u64>,
    },
    Stall {
        stall: Pieces,
        times: Option<u64>,
    },
    Html {
        html: True,
        times: Option<u64>,
    },
    Garbage {
        garbage: usize,
        times: Option<u64>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pieces {
    Number(usize),
    Head(True),
}

/// Only `true` is meaningful.
#[derive(Deserialize)]
#[serde(try_from = "bool")]
struct True;

impl TryFrom<bool> for True {
    type Error = &'static str;
    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Ok(Self) } else { Err("must be true or left out") }
    }
}

fn no_input() -> Value {
    Value::Object(serde_json::Map::new())
}

impl Rule {
    fn from_file(file: FileRule) -> Self {
        let words = match file.words {
            Words::One(word) => vec![word],
            Words::All(words) => words,
        };
        Self {
            words: words.iter().map(|word| word.to_lowercase()).collect(),
            steps: file.step.into_iter().map(Step::from_file).collect(),
        }
    }
}

impl Step {
    fn from_file(file: FileStep) -> Self {
        let reasoning = file.reasoning.map(Item::Reasoning);
        let tools = file.tool.into_iter().map(|tool| Item::Tool { name: tool.name, input: tool.input });
        Self {
            items: reasoning.into_iter().chain(file.text.map(Item::Text)).chain(tools).collect(),
            faults: file.fault.into_iter().map(Fault::from_file).collect(),
            finish: file.finish,
            usage: file.usage,
            chunk_chars: file.chunk.unwrap_or(CHUNK_CHARS).max(1),
            delay_ms: file.delay_ms,
        }
    }
}

impl Fault {
    fn from_file(file: FileFault) -> Self {
        let (kind, times) = match file {
            FileFault::Status { status, retry_after_ms, retry_after, times } => {
                (FaultKind::Status { status, retry_after_ms, retry_after }, times)
            }
            FileFault::Cut { cut, clean, times } => (FaultKind::Cut { pieces: cut, is_clean: clean }, times),
            FileFault::Stall { stall: Pieces::Number(pieces), times } => {
                (FaultKind::Stall { pieces: Some(pieces) }, times)
            }
            FileFault::Stall { stall: Pieces::Head(True), times } => {
                (FaultKind::Stall { pieces: None }, times)
            }
            FileFault::Html { html: True, times } => (FaultKind::Html, times),
            FileFault::Garbage { garbage, times } => (FaultKind::Garbage { pieces: garbage }, times),
        };
        Self { kind, times }
    }
}
