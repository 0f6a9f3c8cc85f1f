//! Ends the loop's part of a turn: the session waits, or the turn is over.

use crate::{
    record::{ParkResult, WriteError},
    turn::{
        compaction,
        parking::{self, Parking},
        session_loop::Loop,
        snapshots::{self, PATIENCE},
        titling,
    },
};
use domain::{
    session::Outcome,
    turn::{action::ParkReason, signal::Signal},
};
use store::log::{
    change::{ChangeBody, Charge},
    record::Progress,
};

impl Loop {
    /// Parks the session, unless an input arrived first.
    pub(super) async fn park(&mut self, reason: ParkReason) -> Result<Signal, WriteError> {
        let (settings, leave) = (self.guidance.settings(), &self.control.leave);
        let settled = self.snapshots.settle_rest(&self.session, settings, leave, PATIENCE).await;
        if !settled.is_empty() {
            self.session.write(settled, Progress::None).await?;
        }
        let pruned = match reason {
            ParkReason::Idle(outcome) => {
                if outcome == Outcome::Done {
                    self.ask_again_for_title();
                }
                snapshots::summarize_changes(&mut self.session).await?;
                compaction::prune(&self.session, self.guidance.settings())
            }
            ParkReason::Wait(_) => vec![],
        };
        if self.titling.is_asking() {
            self.session.record.flush().await?;
        }
        let title = self.titling.wait(&mut self.control).await;
        titling::store_title(&mut self.session, title).await?;
        let Parking { park, events } = Parking::new(&self.session, reason, pruned);
        // If the session is parked, the loop ends, and with it an open call for a title.
        let entries = self.titling.open_entries();
        let spend = (!entries.is_empty()).then(|| ChangeBody::Spend(Charge::new(entries)));
        let changes = spend.into_iter().chain(events.into_iter().map(ChangeBody::Event)).collect();
        match self.session.record.park(changes, &park).await? {
            ParkResult::NewInput => Ok(Signal::NewInput),
            ParkResult::Parked => {
                parking::after_park(&mut self.session, reason).await;
                Ok(Signal::Parked)
            }
        }
    }

    /// Asks for a title at the end of a turn whose last step another worker ran. A worker without a certain lease leaves it to a later turn.
    fn ask_again_for_title(&mut self) {
        if !self.titling.is_open() || !*self.control.lease.borrow() {
            return;
        }
        let user = self.session.newest_user().and_then(|user| self.models().choose(user));
        if let Some(user) = user {
            self.ask_for_title(&user);
        }
    }
}
