//! Prompts with scripts for the model, chosen by the seed. Each call leaves a line with its canary in a workspace file,
//! so that an outside observer can count its executions.

use super::canary::Canaries;
use crate::faults::history::{Call, Effect, Subtask};
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;

/// The file that commands append to.
pub const EFFECTS: &str = "effects";
/// The file that edits extend.
pub const LOG: &str = "log";
/// The last line of that file.
const LOG_END: &str = "END";
/// Greatest depth of subtasks.
const DEPTH: u32 = 2;
/// Number of calls of a poison, one after the other. Each call that ends counts as progress.
const POISON_CALLS: usize = 8;
/// Duration of each of them; seconds. Longer than all kills of a poison take, and less than the time limit of a command.
const POISON_S: u32 = 110;
/// The label that people choose.
pub const LABEL: &str = "red";

/// The kinds of prompts, by what the model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It answers with one text.
    Say,
    /// It streams a text for a second.
    Stream,
    /// It calls several commands, one after the other.
    Commands,
    /// It calls several commands in one step.
    Parallel,
    /// It calls one long command.
    Slow,
    /// It calls several long commands, one after the other.
    Tedious,
    Edit,
    /// It streams a text between commands.
    Mixed,
    /// It starts several subtasks at once, and some of them start subtasks.
    Tree,
    /// It asks a person a question between commands.
    Question,
}

/// Each kind occurs as often as it is listed.
const KINDS: [Kind; 16] = [
    Kind::Say,
    Kind::Stream,
    Kind::Stream,
    Kind::Commands,
    Kind::Commands,
    Kind::Parallel,
    Kind::Slow,
    Kind::Slow,
    Kind::Tedious,
    Kind::Edit,
    Kind::Edit,
    Kind::Mixed,
    Kind::Tree,
    Kind::Tree,
    Kind::Tree,
    Kind::Question,
];

/// A prompt with its script.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its whole text.
    pub text: String,
    pub canary: String,
    /// Its calls that leave an effect.
    pub calls: Vec<Call>,
    /// Its subtasks, at every depth.
    pub subtasks: Vec<Subtask>,
}

/// Makes the first prompt of a session, which creates the file that edits extend.
pub fn first(canaries: &mut Canaries) -> Script {
    let input = json!({"filePath": format!("/workspace/{LOG}"), "content": format!("{LOG_END}\n")});
    let canary = canaries.make();
    let text = format!("{canary}\n@tool write {input}\n@text Created.");
    Script { text, canary, calls: vec![], subtasks: vec![] }
}

/// Makes the prompt of a poison. The harness kills the workers that run its calls.
pub fn poison(canaries: &mut Canaries) -> Script {
    let mut script = Script::begin(canaries);
    (0..POISON_CALLS).for_each(|_| script.command(canaries, POISON_S));
    script
}

/// Makes a prompt of any kind.
pub fn any(rng: &mut StdRng, canaries: &mut Canaries) -> Script {
    let kind = *KINDS.choose(rng).unwrap_or(&Kind::Say);
    of_kind(kind, rng, canaries)
}

/// Makes a prompt that takes some seconds, so that an abort finds an active turn.
pub fn long(rng: &mut StdRng, canaries: &mut Canaries) -> Script {
    let kind = *[Kind::Slow, Kind::Stream, Kind::Tedious, Kind::Tedious].choose(rng).unwrap_or(&Kind::Slow);
    of_kind(kind, rng, canaries)
}

/// Makes a prompt of this kind.
pub fn of_kind(kind: Kind, rng: &mut StdRng, canaries: &mut Canaries) -> Script {
    let mut script = Script::begin(canaries);
    match kind {
        Kind::Say => {}
        Kind::Stream => script.stream(canaries, rng.random_range(15..40)),
        Kind::Commands => (0..rng.random_range(1..=4)).for_each(|_| script.command(canaries, 0)),
        Kind::Parallel => {
            script.line("@tools");
            (0..3).for_each(|_| script.command(canaries, 0));
        }
        Kind::Slow => script.command(canaries, rng.random_range(2..=6)),
        Kind::Tedious => (0..5).for_each(|_| script.command(canaries, 2)),
        Kind::Edit => (0..rng.random_range(1..=2)).for_each(|_| script.edit(canaries)),
        Kind::Mixed => {
            script.command(canaries, 0);
            // The text and the next call are one step: a step without a call would end the turn.
            script.stream(canaries, 10);
            script.command(canaries, 1);
        }
        Kind::Tree => script.delegate(rng, canaries, DEPTH),
        Kind::Question => {
            script.command(canaries, 0);
            script.question(canaries);
            script.command(canaries, 0);
        }
    }
    let last = canaries.make();
    script.line(&format!("@text Over: {last}."));
    script
}

impl Script {
    fn begin(canaries: &mut Canaries) -> Self {
        let canary = canaries.make();
        Self { text: format!("{canary}\n"), canary, calls: vec![], subtasks: vec![] }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn stream(&mut self, canaries: &mut Canaries, delay_ms: u64) {
        let word = canaries.make();
        self.line(&format!(
            "@delay {delay_ms}\n@chunk 6\n@text {}",
            format!("So says {word}, and ").repeat(10)
        ));
    }

    fn command(&mut self, canaries: &mut Canaries, seconds: u32) {
        let canary = canaries.make();
        let append = format!("printf '%s {canary}\\n' \"$EPOCHREALTIME\" >> {EFFECTS}");
        let ticks = if seconds == 0 {
            String::new()
        } else {
            format!("; for i in $(seq {seconds}); do echo tick $i; sleep 1; done")
        };
        self.line(&format!("@tool bash {}", json!({"command": format!("{append}{ticks}")})));
        self.calls.push(Call { canary, tool: "bash" });
    }

    /// Starts several subtasks in one step. Each runs a command, and starts further subtasks while `depth` allows.
    fn delegate(&mut self, rng: &mut StdRng, canaries: &mut Canaries, depth: u32) {
        let mut calls = vec![];
        for _ in 0..rng.random_range(2..=3) {
            let mut child = Self::begin(canaries);
            child.command(canaries, rng.random_range(0..=2));
            if depth > 1 && rng.random_bool(0.4) {
                child.delegate(rng, canaries, depth - 1);
            }
            child.line(&format!("@text Done: {}.", canaries.make()));
            let call = canaries.make();
            let input = json!({"description": call, "prompt": child.text, "subagent_type": "general"});
            calls.push(format!("@tool task {input}"));
            let within = self.canary.clone();
            self.subtasks.push(Subtask { within, call, canary: child.canary, calls: child.calls });
            self.subtasks.append(&mut child.subtasks);
        }
        self.line("@tools");
        calls.iter().for_each(|call| self.line(call));
    }

    fn question(&mut self, canaries: &mut Canaries) {
        let question =
            json!({"question": format!("Which, {}?", canaries.make()), "options": [{"label": LABEL}]});
        self.line(&format!("@tool question {}", json!({"questions": [question]})));
    }

    fn edit(&mut self, canaries: &mut Canaries) {
        let canary = canaries.make();
        let input = json!({
            "filePath": format!("/workspace/{LOG}"),
            "oldString": LOG_END,
            "newString": format!("{canary}\n{LOG_END}"),
        });
        self.line(&format!("@tool edit {input}"));
        self.calls.push(Call { canary, tool: "edit" });
    }
}

/// The content of the two files of a workspace in which calls leave effects.
#[derive(Debug)]
pub struct Files {
    /// The content of [`EFFECTS`].
    pub effects: String,
    /// The content of [`LOG`].
    pub log: String,
}

/// Reads the effects of the calls of one session.
pub fn effects(tenant_id: &str, session_id: &str, files: &Files) -> Vec<Effect> {
    let effect = |canary: &str, at_us| Effect {
        tenant_id: tenant_id.to_owned(),
        session_id: session_id.to_owned(),
        canary: canary.to_owned(),
        at_us,
    };
    let of_command = |line: &str| {
        let (seconds, canary) = line.split_once(' ')?;
        Some(effect(canary, seconds.replace(['.', ','], "").parse().ok()))
    };
    let edits = files.log.lines().filter(|line| *line != LOG_END).map(|line| effect(line, None));
    files.effects.lines().filter_map(of_command).chain(edits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn a_seed_determines_the_prompts_and_every_call_is_unique() {
        let make = |seed| {
            let (mut rng, mut canaries) = (StdRng::seed_from_u64(seed), Canaries::new(1, 2));
            (0..30).map(|_| any(&mut rng, &mut canaries)).collect::<Vec<_>>()
        };
        let (once, again, other) = (make(1), make(1), make(2));
        let text = |scripts: &[Script]| scripts.iter().map(|script| script.text.clone()).collect::<Vec<_>>();
        assert_eq!(text(&once), text(&again));
        assert_ne!(text(&once), text(&other));
        let mut canaries: Vec<_> =
            once.iter().flat_map(|script| &script.calls).map(|call| &call.canary).collect();
        let all = canaries.len();
        canaries.sort();
        canaries.dedup();
        assert!(all > 10 && canaries.len() == all);
    }

    #[test]
    fn effects_are_read_from_both_files() {
        let files = Files {
            effects: "1795292980.519123 cn.t1.s1.1\ntorn".to_owned(),
            log: "cn.t1.s1.2\nEND\n".to_owned(),
        };
        let read = effects("t", "s", &files);
        let want = |canary: &str, at_us| Effect {
            tenant_id: "t".into(),
            session_id: "s".into(),
            canary: canary.into(),
            at_us,
        };
        assert_eq!(read, [want("cn.t1.s1.1", Some(1_795_292_980_519_123)), want("cn.t1.s1.2", None)]);
    }
}
