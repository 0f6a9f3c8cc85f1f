//! The state of Postgres that the protocol depends on: the control rows, the mailboxes, the leases of workers, and the
//! progress of each turn. Each function is one transaction of `crates/store`, and a test runs both side by side.

use super::rules::{BrokenRule, Rules};

/// A session, by its position in the scenario.
pub type Session = usize;
/// A worker process, by the order of starts. A restarted worker has a new number.
pub type Worker = usize;

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// It has no work.
    #[default]
    Idle,
    Runnable,
    Running,
    /// It waits for an input or for its timer.
    Waiting,
    Quarantined,
}

/// An input of a session. Equal inputs have the same dedupe key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// A prompt and its key.
    Prompt(u8),
    /// An abort and its key.
    Abort(u8),
    /// The answer of this child.
    Answer(Session),
}

/// The state of a turn, as the messages and parts of its session record it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Turn {
    /// The open step answers the prompts up to this input.
    pub open: Option<u64>,
    /// All prompts up to this input are answered or aborted.
    pub answered_to: u64,
    /// The number of children that were created.
    pub dispatched: usize,
    /// The children that have answered, one bit each.
    pub answered: u32,
    /// Whether the turn was aborted.
    pub aborted: bool,
}

/// The control row of a session with its mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Run {
    pub exists: bool,
    pub parent: Option<Session>,
    /// The number of the newest takeover.
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
    pub phase: Phase,
    pub owner: Option<Worker>,
    /// Takeovers since the last progress.
    pub attempts: u8,
    /// Whether a timer will wake it.
    pub wakes: bool,
    /// The mailbox: input n is at n - 1.
    pub inputs: Vec<Input>,
    pub turn: Turn,
}

impl Run {
    /// Returns the newest prompt up to `read_input`; 0 without one.
    pub fn newest_prompt(&self, read_input: u64) -> u64 {
        let read_input = usize::try_from(read_input).unwrap_or(usize::MAX).min(self.inputs.len());
        let newest = self.inputs[..read_input].iter().rposition(|input| matches!(input, Input::Prompt(_)));
        newest.map_or(0, |place| place as u64 + 1)
    }

    /// Returns the inputs after `after`.
    pub fn inputs_after(&self, after: u64) -> &[Input] {
        let after = usize::try_from(after).unwrap_or(usize::MAX).min(self.inputs.len());
        &self.inputs[after..]
    }
}

/// The fence of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    pub session: Session,
    /// The number of the takeover.
    pub epoch: u64,
    /// The number of this write.
    pub write_seq: u64,
}

/// The changes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Write {
    /// The number of its events.
    pub events: u64,
    /// The newest input that it takes.
    pub ack: u64,
    /// Whether it resets the attempts.
    pub progress: bool,
    pub turn: Turn,
}

/// The reason why a loop parks its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Park {
    /// The turn is over. A child answers its parent.
    Idle,
    Waiting,
    BackOff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteResult {
    /// It is now stored; its first event has this number.
    Now(u64),
    Before,
    /// Not stored: the session has an input that the loop has not read.
    NewInput,
    /// Not stored: another worker owns the session.
    Fenced,
}

/// The result of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeResult {
    /// The worker owns the session.
    Yes {
        /// The number of the takeover.
        epoch: u64,
        /// The newest input that a loop has taken.
        input_ack: u64,
        /// The number of attempts, including this one.
        attempts: u8,
    },
    /// Another worker owns it, or it needs no worker.
    No,
    /// It is a suspect, and this worker already runs one.
    Suspect,
    /// It has used all attempts.
    Exhausted,
}

/// The limits of attempts without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// After this number of attempts a session is a suspect: a worker runs only one of them.
    pub suspect: u8,
    /// After this number of attempts a session is quarantined.
    pub most: u8,
}

/// The limits of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeLimits {
    pub attempts: Attempts,
    /// Whether the worker already runs a suspect.
    pub has_suspect: bool,
}

/// The result of accepting an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptResult {
    Wakes,
    /// It needs no further worker.
    Quietly,
    /// It is refused, because the session is quarantined.
    No,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Postgres {
    /// By session.
    pub runs: Vec<Run>,
    /// Whether the lease is valid, by worker.
    pub leases: Vec<bool>,
}

impl Postgres {
    pub fn accept_prompt(&mut self, rules: &Rules, session: Session, key: u8) -> AcceptResult {
        let run = &mut self.runs[session];
        if run.inputs.contains(&Input::Prompt(key)) {
            return AcceptResult::Quietly;
        }
        if run.phase == Phase::Quarantined {
            return AcceptResult::No;
        }
        let needs_worker = run.phase != Phase::Running;
        run.put(rules, Input::Prompt(key), 1);
        if needs_worker { AcceptResult::Wakes } else { AcceptResult::Quietly }
    }

    /// Accepts an abort; quietly if no turn is active.
    pub fn accept_abort(&mut self, rules: &Rules, session: Session, key: u8) -> AcceptResult {
        let run = &mut self.runs[session];
        match run.phase {
            Phase::Idle => AcceptResult::Quietly,
            Phase::Quarantined => AcceptResult::No,
            Phase::Runnable | Phase::Running | Phase::Waiting => {
                let ends_with_abort = run.cancel_seq > run.input_ack && run.cancel_seq == run.input_seq;
                if !ends_with_abort {
                    run.put(rules, Input::Abort(key), 0);
                }
                AcceptResult::Wakes
            }
        }
    }

    /// Returns whether a worker may take the session: it has no living owner.
    pub fn is_free(&self, session: Session) -> bool {
        let run = &self.runs[session];
        run.phase == Phase::Runnable || self.is_orphaned(session)
    }

    /// Returns whether the owner of the session is dead by the clock of the database.
    pub fn is_orphaned(&self, session: Session) -> bool {
        let run = &self.runs[session];
        run.phase == Phase::Running && !run.owner.is_some_and(|owner| self.leases[owner])
    }

    /// Takes a session over. With `token`, it becomes the epoch.
    pub fn take(
        &mut self,
        rules: &Rules,
        session: Session,
        owner: Worker,
        TakeLimits { attempts, has_suspect }: TakeLimits,
        token: Option<u64>,
    ) -> TakeResult {
        let hinted = rules.is_broken(BrokenRule::NoMarker)
            && self.runs[session].phase == Phase::Idle
            && self.runs[session].input_seq > self.runs[session].input_ack;
        if !self.is_free(session) && !hinted {
            return TakeResult::No;
        }
        let run = &mut self.runs[session];
        let most = if has_suspect { attempts.suspect } else { attempts.most };
        if run.attempts >= attempts.most {
            return TakeResult::Exhausted;
        }
        if run.attempts >= most && !rules.is_broken(BrokenRule::SuspectsTogether) {
            return TakeResult::Suspect;
        }
        run.epoch = token.unwrap_or(run.epoch + 1);
        run.write_seq = 0;
        run.phase = Phase::Running;
        run.owner = Some(owner);
        run.attempts += 1;
        run.wakes = false;
        TakeResult::Yes { epoch: run.epoch, input_ack: run.input_ack, attempts: run.attempts }
    }

    /// Returns whether the fence admits a write. The check is valid only in the same step as the write.
    pub fn admits(&self, rules: &Rules, fence: Fence) -> bool {
        let run = &self.runs[fence.session];
        if rules.is_broken(BrokenRule::NoFence) {
            return true;
        }
        let is_next = run.write_seq + 1 == fence.write_seq;
        run.epoch == fence.epoch && (is_next || rules.is_broken(BrokenRule::NoWriteNumbers))
    }

    pub fn append(&mut self, rules: &Rules, fence: Fence, write: &Write) -> WriteResult {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        self.store(rules, fence, write)
    }

    /// Stores a write that an earlier step admitted, when this was the newest event: [`BrokenRule::FenceByReading`].
    pub fn append_admitted(
        &mut self,
        rules: &Rules,
        fence: Fence,
        write: &Write,
        event_seq: u64,
    ) -> WriteResult {
        self.runs[fence.session].event_seq = event_seq;
        self.store(rules, fence, write)
    }

    /// Stores a write and creates a child with its first prompt, which needs a worker.
    pub fn dispatch(&mut self, rules: &Rules, fence: Fence, write: &Write, child: Session) -> WriteResult {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        let run = &mut self.runs[child];
        if !run.exists {
            *run = Run { exists: true, parent: Some(fence.session), event_seq: 2, ..Run::default() };
            run.put(rules, Input::Prompt(0), 1);
        }
        self.store(rules, fence, write)
    }

    /// Stores a write and parks the session, unless it has inputs that the write does not take.
    pub fn park(&mut self, rules: &Rules, fence: Fence, write: &Write, park: Park) -> WriteResult {
        if !self.admits(rules, fence) {
            return self.already_written(fence);
        }
        let run = &self.runs[fence.session];
        if run.input_seq > write.ack && !rules.is_broken(BrokenRule::BlindPark) {
            return WriteResult::NewInput;
        }
        let written = self.store(rules, fence, &Write { progress: true, ..*write });
        let run = &mut self.runs[fence.session];
        (run.phase, run.wakes) = match park {
            Park::Idle => (Phase::Idle, false),
            Park::Waiting => (Phase::Waiting, false),
            Park::BackOff => (Phase::Waiting, true),
        };
        run.owner = None;
        if park == Park::Idle && !rules.is_broken(BrokenRule::AnswerAfterPark) {
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

    /// Hands a session over, so that another worker continues at once. This is no failed attempt.
    pub fn hand_over(&mut self, session: Session, epoch: u64) {
        let run = &mut self.runs[session];
        if run.epoch == epoch && run.phase == Phase::Running {
            run.phase = Phase::Runnable;
            run.owner = None;
            run.attempts = run.attempts.saturating_sub(1);
        }
    }

    /// Gives back a session whose loop failed. A suspect pauses first, unless it was aborted.
    pub fn fail_attempt(&mut self, session: Session, epoch: u64, attempts: Attempts) {
        let run = &mut self.runs[session];
        if run.epoch == epoch && run.phase == Phase::Running {
            run.wakes = run.attempts >= attempts.suspect && run.cancel_seq <= run.input_ack;
            run.phase = if run.wakes { Phase::Waiting } else { Phase::Runnable };
            run.owner = None;
        }
    }

    /// Quarantines a session that has used all attempts, and delivers its answer to the parent. Returns whether it did.
    pub fn quarantine(&mut self, rules: &Rules, session: Session, attempts: Attempts) -> bool {
        let is_exhausted = self.is_free(session) && self.runs[session].attempts >= attempts.most;
        is_exhausted && self.take_out(rules, session)
    }

    /// Quarantines a session that has work, as an operator does. Returns whether it did.
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

    /// Makes a session with an expired timer runnable.
    pub fn wake(&mut self, session: Session) {
        let run = &mut self.runs[session];
        if run.phase == Phase::Waiting && run.wakes {
            run.phase = Phase::Runnable;
            run.wakes = false;
        }
    }

    fn store(&mut self, rules: &Rules, fence: Fence, write: &Write) -> WriteResult {
        let run = &mut self.runs[fence.session];
        run.write_seq = fence.write_seq;
        run.event_seq += write.events;
        run.input_ack = run.input_ack.max(write.ack);
        if write.progress && !rules.is_broken(BrokenRule::AttemptsStay) {
            run.attempts = 0;
        }
        run.turn = write.turn;
        WriteResult::Now(run.event_seq + 1 - write.events)
    }

    fn already_written(&self, fence: Fence) -> WriteResult {
        let run = &self.runs[fence.session];
        let is_stored = run.epoch == fence.epoch && run.write_seq >= fence.write_seq;
        if is_stored { WriteResult::Before } else { WriteResult::Fenced }
    }
}

impl Run {
    /// Puts an input into the mailbox, once for each key, and makes the session runnable unless a worker runs it.
    fn put(&mut self, rules: &Rules, input: Input, events: u64) {
        let repeats = rules.is_broken(BrokenRule::AnswersRepeat) && matches!(input, Input::Answer(_));
        if self.inputs.contains(&input) && !repeats {
            return;
        }
        self.inputs.push(input);
        self.input_seq += 1;
        self.event_seq += events;
        if matches!(input, Input::Abort(_)) {
            self.cancel_seq = self.input_seq;
        }
        if matches!(self.phase, Phase::Idle | Phase::Waiting) && !rules.is_broken(BrokenRule::NoMarker) {
            self.phase = Phase::Runnable;
            self.wakes = false;
        }
    }
}
