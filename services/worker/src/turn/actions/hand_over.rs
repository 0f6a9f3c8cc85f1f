//! Leaves the session to another worker.

use crate::{
    record::{Write, WriteError},
    turn::session_loop::Loop,
};
use domain::event::Event;
use store::log::record::Progress;

impl Loop {
    pub(in crate::turn) async fn hand_over(&mut self) -> Result<(), WriteError> {
        let worker = self.session.deps.name.clone();
        let titles = self.titling.stop();
        if !titles.is_empty() {
            self.session.record.write(Write::of(vec![]).and_cost(titles)).await?;
        }
        self.session.write(vec![Event::LoopHandedOver { worker }], Progress::None).await?;
        self.session.record.hand_over().await
    }
}
