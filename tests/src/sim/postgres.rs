//! What Postgres holds, as far as the protocol depends on it: the control rows, the mailboxes, the leases of workers, and
//! of each conversation how far its turn is. Each function is one transaction of `crates/store`, and a test runs both
//! side by side.

use super::rules::{Broken, Rules};

/// A session, by its place in the scenario.
pub type Session = usize;
/// A process of a worker, by its place in the order of starts. A restarted worker is another one.
pub type Worker = usize;

/// What a session needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// A worker.
    Runnable,
    /// Nothing: a worker has it.
    Running,
    /// An input, or its timer.
    Waiting,
    /// An operator.
    Quarantined,
}

/// Something a loop must react to. Equal ones have the same dedupe key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// A prompt and its key.
    Prompt(u8),
    /// An abort and its key.
    Abort(u8),
    /// What this child says.
    Answer(Session),
}

/// What the messages and parts of a session say about its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Turn {
    /// The step under way answers the prompts up to this input.
    pub open: Option<u64>,
    /// All prompts up to this input have an answer, or were aborted.
    pub answered_to: u64,
    /// How many of the session's children were made.
    pub dispatched: usize,
    /// Which of them have answered, a bit for each.
    pub answered: u32,
    /// Whether the turn was aborted.
    pub aborted: bool,
}

/// The control row of a session with its mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Run {
    /// Whether the session was made.
    pub exists: bool,
    /// Whom it answers.
    pub parent: Option<Session>,
    /// The number of the newest take-over.
    pub epoch: u64,
    /// The number of the newest write of that epoch.
    pub write_seq: u64,
    /// The number of the newest event.
    pub event_seq: u64,
    /// The number of the newest input.
    pub input_seq: u64,
    /// The newest input that a loop has taken.
    pub input_ack: u64,
    /// The newest abort.
    pub cancel_seq: u64,
    /// What it needs.
    pub phase: Phase,
    /// Who has it.
    pub owner: Option<Worker>,
    /// Take-overs since the last progress.
    pub attempts: u8,
    /// Whether a timer will wake it.
    pub wakes: bool,
    /// The mailbox: input n is at n - 1.
    pub inputs: Vec<Input>,
    /// How far its turn is.
    pub turn: Turn,
}

impl Run {
    /// The newest prompt up to `seen`; 0 without one.
    pub fn newest_prompt(&self, seen: u64) -> u64 {
        let seen = usize::try_from(seen).unwrap_or(usize::MAX).min(self.inputs.len());
        let newest = self.inputs[..seen].iter().rposition(|input| matches!(input, Input::Prompt(_)));
        newest.map_or(0, |place| place as u64 + 1)
    }

    /// The inputs after `after`.
    pub fn inputs_after(&self, after: u64) -> &[Input] {
        let after = usize::try_from(after).unwrap_or(usize::MAX).min(self.inputs.len());
        &self.inputs[after..]
    }
}

/// The right to write, with the number of the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Which session.
    pub session: Session,
    /// The number of the take-over.
    pub epoch: u64,
    /// The number of this write.
    pub write_seq: u64,
}

/// What a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Write {
    /// How many events it has.
    pub events: u64,
    /// The newest input that it takes.
    pub ack: u64,
    /// Whether it forgives earlier attempts.
    pub progress: bool,
    /// The turn after it.
    pub turn: Turn,
}

/// How a loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Park {
    /// The turn is over. A child answers its parent.
    Idle,
    /// A child must answer.
    Waiting,
    /// A timer must end.
    BackOff,
}

/// What a write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Written {
    /// It is stored now; its first event has this number.
    Now(u64),
    /// It was stored before.
    Before,
    /// Not stored: an input came that the loop has not seen.
    NewInput,
    /// Not stored: another worker owns the session.
    Fenced,
}

/// What a take-over found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Take {
    /// It is ours.
    Yes {
        /// The number of the take-over.
        epoch: u64,
        /// The newest input that a loop has taken.
        input_ack: u64,
        /// With this one.
        attempts: u8,
    },
    /// Somebody else has it, or it needs no worker.
    No,
    /// It failed before, and this worker has such a one already.
    Suspect,
    /// It was tried too often.
    Exhausted,
}

/// Attempts without progress: more than the first make a suspect, the second end in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// A session that was tried this often runs apart from its like.
    pub suspect: u8,
    /// A session that was tried this often is not tried again.
    pub most: u8,
}

/// What became of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Workers are to be told.
    Wakes,
    /// Nobody needs to be told.
    Quietly,
    /// Nobody would take it before an operator releases the session.
    No,
}

/// The database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Postgres {
    /// By session.
    pub runs: Vec<Run>,
    /// Whose lease runs, by worker.
    pub leases: Vec<bool>,
}

impl Postgres {
    /// Accepts a prompt.
    pub fn accept_prompt(&mut self, rules: &Rules, session: Session, key: u8) -> Accepted {
        let run = &mut self.runs[session];
        if run.inputs.contains(&Input::Prompt(key)) {
            return Accepted::Quietly;
        }
        if run.phase == Phase::Quarantined {
            return Accepted::No;
        }
        let needs_worker = run.phase != Phase::Running;
        run.put(rules, Input::Prompt(key), 1);
        if needs_worker { Accepted::Wakes } else { Accepted::Quietly }
    }

    /// Accepts an abort; quietly when there is nothing to stop.
    pub fn accept_abort(&mut self, rules: &Rules, session: Session, key: u8) -> Accepted {
        let run = &mut self.runs[session];
        match run.phase {
            Phase::Idle => Accepted::Quietly,
            Phase::Quarantined => Accepted::No,
            Phase::Runnable | Phase::Running | Phase::Waiting => {
                let ends_with_abort = run.cancel_seq > run.input_ack && run.cancel_seq == run.input_seq;
                if !ends_with_abort {
                    run.put(rules, Input::Abort(key), 0);
                }
                Accepted::Wakes
            }
        }
    }

    /// Whether a worker may take the session, as far as its owner is concerned.
    pub fn is_free(&self, session: Session) -> bool {
        let run = &self.runs[session];
        run.phase == Phase::Runnable || self.is_orphaned(session)
    }

    /// Whether the worker that has the session is dead by the database's clock.
    pub fn is_orphaned(&self, session: Session) -> bool {
        let run = &self.runs[session];
        run.phase == Phase::Running && !run.owner.is_some_and(|owner| self.leases[owner])
    }

    /// Takes a session over. With `token` the epoch is that one and not the next.
    pub fn take(
        &mut self,
        rules: &Rules,
        (session, owner): (Session, Worker),
        (attempts, has_suspect): (Attempts, bool),
        token: Option<u64>,
    ) -> Take {
        let hinted = rules.lack(Broken::NoMarker)
            && self.runs[session].phase == Phase::Idle
            && self.runs[session].input_seq > self.runs[session].input_ack;
        if !self.is_free(session) && !hinted {
            return Take::No;
        }
        let run = &mut self.runs[session];
        let most = if has_suspect { attempts.suspect } else { attempts.most };
        if run.attempts >= attempts.most {
            return Take::Exhausted;
        }
        if run.attempts >= most && !rules.lack(Broken::SuspectsTogether) {
            return Take::Suspect;
        }
        run.epoch = token.unwrap_or(run.epoch + 1);
        run.write_seq = 0;
        run.phase = Phase::Running;
        run.owner = Some(owner);
        run.attempts += 1;
        run.wakes = false;
        Take::Yes { epoch: run.epoch, input_ack: run.input_ack, attempts: run.attempts }
    }

    /// Whether the fence lets a write in: a check that is only worth something in the same step as the write.
    pub fn admits(&self, rules: &Rules, fence: Fence) -> bool {
        let run = &self.runs[fence.session];
        if rules.lack(Broken::NoFence) {
            return true;
        }
        let is_next = run.write_seq + 1 == fence.write_seq;
        run.epoch == fence.epoch && (is_next || rules.lack(Broken::NoWriteNumbers))
    }

    /// Writes.
    pub fn append(&mut self, rules: &Rules, fence: Fence, write: &Write) -> Written {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        self.store(rules, fence, write)
    }

    /// Writes what an earlier step admitted, when the newest event was this one: [`Broken::FenceByReading`].
    pub fn append_admitted(&mut self, rules: &Rules, fence: Fence, write: &Write, event_seq: u64) -> Written {
        self.runs[fence.session].event_seq = event_seq;
        self.store(rules, fence, write)
    }

    /// Writes and makes a child, which has its first prompt and needs a worker.
    pub fn dispatch(&mut self, rules: &Rules, fence: Fence, write: &Write, child: Session) -> Written {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        let run = &mut self.runs[child];
        if !run.exists {
            *run = Run { exists: true, parent: Some(fence.session), event_seq: 1, ..Run::default() };
            run.put(rules, Input::Prompt(0), 1);
        }
        self.store(rules, fence, write)
    }

    /// Writes and frees the session, unless an input came after those that the write takes.
    pub fn park(&mut self, rules: &Rules, fence: Fence, write: &Write, park: Park) -> Written {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        let run = &self.runs[fence.session];
        if run.input_seq > write.ack && !rules.lack(Broken::BlindPark) {
            return Written::NewInput;
        }
        let written = self.store(rules, fence, &Write { progress: true, ..*write });
        let run = &mut self.runs[fence.session];
        (run.phase, run.wakes) = match park {
            Park::Idle => (Phase::Idle, false),
            Park::Waiting => (Phase::Waiting, false),
            Park::BackOff => (Phase::Waiting, true),
        };
        run.owner = None;
        if park == Park::Idle && !rules.lack(Broken::AnswerAfterPark) {
            self.deliver(rules, fence.session);
        }
        written
    }

    /// Puts a child's answer into the mailbox of its parent.
    pub fn deliver(&mut self, rules: &Rules, child: Session) {
        if let Some(parent) = self.runs[child].parent {
            self.runs[parent].put(rules, Input::Answer(child), 0);
        }
    }

    /// Gives a session back so that another worker goes on at once: no failed attempt.
    pub fn hand_over(&mut self, session: Session, epoch: u64) {
        let run = &mut self.runs[session];
        if run.epoch == epoch && run.phase == Phase::Running {
            run.phase = Phase::Runnable;
            run.owner = None;
            run.attempts = run.attempts.saturating_sub(1);
        }
    }

    /// Gives a session back whose loop failed; a suspect pauses first, unless it was aborted.
    pub fn fail_attempt(&mut self, session: Session, epoch: u64, attempts: Attempts) {
        let run = &mut self.runs[session];
        if run.epoch == epoch && run.phase == Phase::Running {
            run.wakes = run.attempts >= attempts.suspect && run.cancel_seq <= run.input_ack;
            run.phase = if run.wakes { Phase::Waiting } else { Phase::Runnable };
            run.owner = None;
        }
    }

    /// Takes a session out of service that was tried too often, and tells its parent. Gives whether it did.
    pub fn quarantine(&mut self, rules: &Rules, session: Session, attempts: Attempts) -> bool {
        let is_exhausted = self.is_free(session) && self.runs[session].attempts >= attempts.most;
        is_exhausted && self.take_out(rules, session)
    }

    /// Takes any session out of service that has work, as an operator does. Gives whether it had.
    pub fn take_out(&mut self, rules: &Rules, session: Session) -> bool {
        let run = &mut self.runs[session];
        if matches!(run.phase, Phase::Idle | Phase::Quarantined) {
            return false;
        }
        run.epoch += 1;
        run.write_seq = 0;
        run.event_seq += 3;
        run.phase = Phase::Quarantined;
        run.owner = None;
        run.wakes = false;
        self.deliver(rules, session);
        true
    }

    /// Makes a session runnable whose timer is over.
    pub fn wake(&mut self, session: Session) {
        let run = &mut self.runs[session];
        if run.phase == Phase::Waiting && run.wakes {
            run.phase = Phase::Runnable;
            run.wakes = false;
        }
    }

    fn store(&mut self, rules: &Rules, fence: Fence, write: &Write) -> Written {
        let run = &mut self.runs[fence.session];
        run.write_seq = fence.write_seq;
        run.event_seq += write.events;
        run.input_ack = run.input_ack.max(write.ack);
        if write.progress && !rules.lack(Broken::AttemptsStay) {
            run.attempts = 0;
        }
        run.turn = write.turn;
        Written::Now(run.event_seq + 1 - write.events)
    }

    fn already_written(&self, fence: Fence) -> Written {
        let run = &self.runs[fence.session];
        let is_stored = run.epoch == fence.epoch && run.write_seq >= fence.write_seq;
        if is_stored { Written::Before } else { Written::Fenced }
    }
}

impl Run {
    /// Puts an input into the mailbox, once for each key, and makes the session runnable unless somebody has it.
    fn put(&mut self, rules: &Rules, input: Input, events: u64) {
        let repeats = rules.lack(Broken::AnswersRepeat) && matches!(input, Input::Answer(_));
        if self.inputs.contains(&input) && !repeats {
            return;
        }
        self.inputs.push(input);
        self.input_seq += 1;
        self.event_seq += events;
        if matches!(input, Input::Abort(_)) {
            self.cancel_seq = self.input_seq;
        }
        if matches!(self.phase, Phase::Idle | Phase::Waiting) && !rules.lack(Broken::NoMarker) {
            self.phase = Phase::Runnable;
            self.wakes = false;
        }
    }
}
