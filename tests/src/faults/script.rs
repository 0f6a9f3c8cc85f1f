//! Prompts with scripts for the model, chosen by the seed. Each call leaves a line with its canary in a workspace file,
//! so that an outside observer can count its executions.

use super::{
    canary::Canaries,
    history::{self, Call, Subtask},
};
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;

/// The file that commands append to.
pub const EFFECTS: &str = "effects";
/// The file that edits grow.
pub const LOG: &str = "log";
/// What stands behind everything in that file.
const LOG_END: &str = "END";
/// How deep subtasks give subtasks away.
const DEPTH: u32 = 2;
/// Calls of a poison, one after the other: with each that is somehow over, the session has made progress.
const POISON_CALLS: usize = 8;
/// How long one takes: longer than a worker that runs it lives. Seconds.
const POISON_S: u32 = 60;
/// The answer that people choose.
pub const LABEL: &str = "red";

/// What a prompt makes the model do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It says one thing.
    Say,
    /// It streams for a second.
    Stream,
    /// It calls one command after the other.
    Commands,
    /// It calls several commands in one step.
    Parallel,
    /// It calls a command that takes long.
    Slow,
    /// It calls one command that takes long after the other.
    Tedious,
    /// It changes a file.
    Edit,
    /// It talks between commands.
    Mixed,
    /// It gives several subtasks away at once, and some of them do the same.
    Tree,
    /// It asks a person between commands.
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

/// A prompt that is ready to be sent.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its whole text.
    pub text: String,
    /// What names it.
    pub canary: String,
    /// What it does to the world.
    pub calls: Vec<Call>,
    /// What it gives away, at every depth.
    pub subtasks: Vec<Subtask>,
}

/// The first prompt of a session: makes the file that edits grow.
pub fn first(canaries: &mut Canaries) -> Script {
    let input = json!({"filePath": format!("/workspace/{LOG}"), "content": format!("{LOG_END}\n")});
    let canary = canaries.make();
    let text = format!("{canary}\n@tool write {input}\n@text Made.");
    Script { text, canary, calls: vec![], subtasks: vec![] }
}

/// The prompt of a session whose calls end the worker that runs them, which the harness sees to.
pub fn poison(canaries: &mut Canaries) -> Script {
    let mut script = Script::begin(canaries);
    (0..POISON_CALLS).for_each(|_| script.command(canaries, POISON_S));
    script
}

/// A prompt of any kind.
pub fn any(rng: &mut StdRng, canaries: &mut Canaries) -> Script {
    let kind = *KINDS.choose(rng).unwrap_or(&Kind::Say);
    of_kind(kind, rng, canaries)
}

/// A prompt that takes some seconds: there is something to stop.
pub fn long(rng: &mut StdRng, canaries: &mut Canaries) -> Script {
    let kind = *[Kind::Slow, Kind::Stream, Kind::Tedious, Kind::Tedious].choose(rng).unwrap_or(&Kind::Slow);
    of_kind(kind, rng, canaries)
}

/// A prompt of this kind.
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
            // In one step with the call that follows: a step without a call ends the turn.
            script.stream(canaries, 10);
            script.command(canaries, 1);
        }
        Kind::Tree => script.give_away(rng, canaries, DEPTH),
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

    /// Several subtasks in one step; each works a little, and gives some of it away while `depth` allows.
    fn give_away(&mut self, rng: &mut StdRng, canaries: &mut Canaries, depth: u32) {
        let mut calls = vec![];
        for _ in 0..rng.random_range(2..=3) {
            let mut child = Self::begin(canaries);
            child.command(canaries, rng.random_range(0..=2));
            if depth > 1 && rng.random_bool(0.4) {
                child.give_away(rng, canaries, depth - 1);
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

/// Reads what commands and edits left in the two files of one workspace.
pub fn effects(tenant_id: &str, session_id: &str, effects: &str, log: &str) -> Vec<history::Effect> {
    let effect = |canary: &str, at_us| history::Effect {
        tenant_id: tenant_id.to_owned(),
        session_id: session_id.to_owned(),
        canary: canary.to_owned(),
        at_us,
    };
    let of_command = |line: &str| {
        let (seconds, canary) = line.split_once(' ')?;
        Some(effect(canary, seconds.replace(['.', ','], "").parse().ok()))
    };
    let edits = log.lines().filter(|line| *line != LOG_END).map(|line| effect(line, None));
    effects.lines().filter_map(of_command).chain(edits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn the_same_seed_says_the_same_and_every_call_can_be_told_apart() {
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
    fn effects_are_read_back() {
        let read = effects("t", "s", "1795292980.519123 cn.t1.s1.1\ntorn", "cn.t1.s1.2\nEND\n");
        let want = |canary: &str, at_us| history::Effect {
            tenant_id: "t".into(),
            session_id: "s".into(),
            canary: canary.into(),
            at_us,
        };
        assert_eq!(read, [want("cn.t1.s1.1", Some(1_795_292_980_519_123)), want("cn.t1.s1.2", None)]);
    }
}
