//! Reads the stored state, on which the turn decides.

use crate::{
    record::WriteError,
    turn::{compaction, session_loop::Loop},
};
use bus::queue::{Slots, Yield};
use domain::turn::{signal::Signal, view::View};

impl Loop {
    /// Reads everything new since the last look. Right after a write that found no new input there is nothing to read; at the
    /// latest, parking the session finds an input that arrives afterwards.
    pub(super) async fn look(&mut self) -> Result<Signal, WriteError> {
        if !self.session.record.has_read_all() {
            self.session.record.flush().await?;
            self.session.read_inputs().await?;
        }
        self.step.end_pause();
        self.budget.look(&mut self.session).await?;
        let leaving = self.control.leave.soon.is_cancelled() || self.must_yield().await;
        let view = self.session.conversation().view(&self.session.inputs, leaving);
        let view = compaction::with_context_room(view, &self.session, &self.guidance, self.models());
        Ok(Signal::Looked(View { out_of_budget: self.budget.is_used_up(), ..view }))
    }

    /// Whether this session must give up its slot at a step boundary because others have waited longer. It always gets its first
    /// step.
    async fn must_yield(&mut self) -> bool {
        if !self.step.has_closed_one() {
            return false;
        }
        let slots = if self.control.slots.available_permits() == 0 { Slots::Full } else { Slots::Free };
        let (tenant, worker) = (self.session.record.tenant(), self.session.deps.incarnation.to_string());
        if !self.control.contention.may_concern(tenant, slots) {
            return false;
        }
        let bus = &self.session.deps.bus;
        match bus.should_yield(tenant, self.session.record.session(), &worker, slots).await {
            Ok(Yield::Keep) => false,
            Ok(Yield::ToTenant | Yield::ToClass) => {
                metrics::counter!("flotilla_yields_total").increment(1);
                true
            }
            // Redis holds the fairness clock. While Redis is down, workers claim in Postgres order, which is close enough to fair.
            Err(_) => false,
        }
    }
}
