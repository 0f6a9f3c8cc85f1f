//! The text of each guard in the sources, and its replacement.

use super::guard::Mutant;

/// A guard in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// The mutant. A mutant may have several edits, which do not overlap.
    pub mutant: Mutant,
    /// The file, from the root of the workspace.
    pub file: &'static str,
    /// The text of the guard, which occurs in the file exactly once.
    pub guard: &'static str,
    pub without: &'static str,
}

impl Mutant {
    /// Lists the edits that remove the guard.
    pub fn edits(self) -> Vec<Edit> {
        EDITS.into_iter().filter(|edit| edit.mutant == self).collect()
    }
}

const EDITS: [Edit; 28] = [
    Edit {
        mutant: Mutant::EpochUnchecked,
        file: "crates/store/src/log/control.rs",
        guard: r#"pub(crate) const FENCE: &str = "epoch = $3 and write_seq = $4 - 1";"#,
        without: r#"pub(crate) const FENCE: &str = "epoch >= $3";"#,
    },
    Edit {
        mutant: Mutant::EpochBySelect,
        file: "crates/store/src/log/control.rs",
        guard: "          where tenant_id = $1 and session_id = $2 and {FENCE}",
        without: "          where tenant_id = $1 and session_id = $2 and epoch >= $3",
    },
    Edit {
        mutant: Mutant::EpochBySelect,
        file: "crates/store/src/log/record.rs",
        guard: "    let update = update.bind(fence.tenant.0).bind(fence.session.to_string());",
        without: r#"    let read = "select 1 from session_run where tenant_id = $1 and session_id = $2 and epoch = $3 and write_seq = $4 - 1";
    let read = sqlx::query(read).bind(fence.tenant.0).bind(fence.session.to_string());
    let read = read.bind(signed(fence.epoch)).bind(signed(fence.write_seq));
    if read.fetch_optional(&mut *connection).await?.is_none() {
        return Err(Error::Fenced);
    }
    let update = update.bind(fence.tenant.0).bind(fence.session.to_string());"#,
    },
    Edit {
        mutant: Mutant::WriteSeqUnchecked,
        file: "crates/store/src/log/control.rs",
        guard: r#"pub(crate) const FENCE: &str = "epoch = $3 and write_seq = $4 - 1";"#,
        without: r#"pub(crate) const FENCE: &str = "epoch = $3 and write_seq >= $4 - 1";"#,
    },
    Edit {
        mutant: Mutant::ParkBlind,
        file: "crates/store/src/session/park.rs",
        guard: "              and input_seq = $6",
        without: "",
    },
    Edit {
        mutant: Mutant::NoSweeper,
        file: "services/worker/src/claim/sweep.rs",
        guard: "    let rings = claimer.contention.rings();",
        without: "    if !claimer.drain.is_on() {
        return claimer.claim().await;
    }
    let rings = claimer.contention.rings();",
    },
    Edit {
        mutant: Mutant::AliveUnchecked,
        file: "crates/store/src/session/runs.rs",
        guard: "r.phase = {RUNNABLE} or r.phase = {RUNNING} and not coalesce(worker_alive(r.owner), false))",
        without: "r.phase = {RUNNABLE} or r.phase = {RUNNING} and r.owner <> $3)",
    },
    Edit {
        mutant: Mutant::AliveUnchecked,
        file: "crates/store/src/control/queue.rs",
        guard: "                and not coalesce(lease_runs(w.lease_until), false)",
        without: "",
    },
    Edit {
        mutant: Mutant::AttemptsKept,
        file: "crates/store/src/log/control.rs",
        guard: "attempts = case when $7 then 0 else attempts end",
        without: "attempts = case when $7 then attempts else attempts end",
    },
    Edit {
        mutant: Mutant::AttemptsKept,
        file: "crates/store/src/session/park.rs",
        guard: "                  attempts = 0,",
        without: "                  attempts = attempts,",
    },
    Edit {
        mutant: Mutant::DedupeOff,
        file: "services/gateway/src/app/prompts/accept.rs",
        guard: r#""" => format!("msg:{id}"),"#,
        without: r#""" => format!("msg:{}", state.id(MessageId::make)),"#,
    },
    Edit {
        mutant: Mutant::DedupeOff,
        file: "services/gateway/src/app/prompts/accept.rs",
        guard: r#"key => format!("key:{key}"),"#,
        without: r#"_ => format!("key:{}", state.id(MessageId::make)),"#,
    },
    Edit {
        mutant: Mutant::SandboxEpochUnchecked,
        file: "services/sandbox/src/session/fence.rs",
        guard: "    if epoch < highest {",
        without: "    if epoch < highest && highest == u64::MAX {",
    },
    Edit {
        mutant: Mutant::SandboxEpochForgotten,
        file: "services/sandbox/src/session/fence.rs",
        guard: "Ok(text) => text.trim().parse().unwrap_or(u64::MAX),",
        without: "Ok(_) => 0,",
    },
    Edit {
        mutant: Mutant::ExecIdPerEpoch,
        file: "services/worker/src/turn/tool_calls.rs",
        guard: "exec_id: self.part_id.to_string(),",
        without: r#"exec_id: format!("{}-{}", self.part_id, rand::random::<u32>()),"#,
    },
    Edit {
        mutant: Mutant::RepeatUnchecked,
        file: "services/worker/src/calls/perform.rs",
        guard: "if *resumed && registry::repeat(tool, input) == Repeat::Unknown {",
        without: "if false && *resumed && registry::repeat(tool, input) == Repeat::Unknown {",
    },
    Edit {
        mutant: Mutant::OrphansKept,
        file: "services/worker/src/claim/orphans.rs",
        guard: "        if has_loop {",
        without: "        if has_loop || true {",
    },
    Edit {
        mutant: Mutant::HeartbeatDies,
        file: "services/worker/src/claim/lease.rs",
        guard: "        let redis = self.bus.renew(&self.incarnation.to_string()).await;",
        without: "        let redis = self.bus.renew(&self.incarnation.to_string()).await;
        if redis.is_err() {
            self.tick = Arc::default();
        }",
    },
    Edit {
        mutant: Mutant::GapUnrepaired,
        file: "services/gateway/src/streams/hub.rs",
        guard: "if self.sent > 0 && event.seq > self.sent + 1 {",
        without: "if self.sent > 0 && event.seq == 0 {",
    },
    Edit {
        mutant: Mutant::GapUnrepaired,
        file: "services/gateway/src/streams/subscription.rs",
        guard: "LineEvent::Event(event, text) if event.seq == self.seen + 1 =>",
        without: "LineEvent::Event(event, text) if event.seq > self.seen =>",
    },
    Edit {
        mutant: Mutant::HeadUnchecked,
        file: "services/gateway/src/streams/hub.rs",
        guard: "HeadState::At(seq) => self.reach(seq).await,",
        without: "HeadState::At(_) => {}",
    },
    Edit {
        mutant: Mutant::HeadUnchecked,
        file: "services/gateway/src/streams/hub.rs",
        guard: "News::Beat { seq, .. } => self.reach(seq).await,",
        without: "News::Beat { .. } => {}",
    },
    Edit {
        mutant: Mutant::DeltaEpochUnchecked,
        file: "services/gateway/src/streams/subscription.rs",
        guard: "LineEvent::Delta(delta) if delta.epoch < self.epoch => Ok(()),",
        without: "LineEvent::Delta(delta) if delta.epoch == u64::MAX => Ok(()),",
    },
    Edit {
        mutant: Mutant::DeltaEpochUnchecked,
        file: "services/gateway/src/streams/open_parts.rs",
        guard: r#""message.part.removed" => serde_json"#,
        without: r#""message.part.removed" if kind.is_empty() => serde_json"#,
    },
    Edit {
        mutant: Mutant::AbortAnnouncedOnly,
        file: "services/gateway/src/app/sessions/abort.rs",
        guard: r#"    let dedupe = format!("abort:{}", state.id(EventId::make));"#,
        without: r#"    let dedupe = format!("abort:{}", state.id(EventId::make));
    if !dedupe.is_empty() {
        state.bus.nudge(tenant, session);
        return Ok(AbortOutcome::TurnAborted);
    }"#,
    },
    Edit {
        mutant: Mutant::DrainDrops,
        file: "services/worker/src/claim/handover.rs",
        guard: "    let leave = claimer.drain.leave();",
        without: "    let leave = claimer.drain.leave();
    if !leave.now.is_cancelled() {
        std::process::exit(0);
    }",
    },
    Edit {
        mutant: Mutant::AckAhead,
        file: "services/worker/src/record.rs",
        guard: "        let (ack, at) = (self.read_input, now());",
        without: "        self.read_input = self.read_input.max(self.newest_input);
        let (ack, at) = (self.read_input, now());",
    },
    Edit {
        mutant: Mutant::WaitKeepsSlot,
        file: "services/worker/src/claim/claimer.rs",
        guard: "    release(deps, key, then).await;
}",
        without: r#"    release(deps, key, then).await;
    loop {
        match deps.store.get_session(key.0, &key.1).await {
            Ok(stored) if stored.waiting_reason.as_deref() != Some("children") => return,
            Ok(_) | Err(_) => tokio::time::sleep(std::time::Duration::from_millis(limits::POLL_MS)).await,
        }
    }
}"#,
    },
];
