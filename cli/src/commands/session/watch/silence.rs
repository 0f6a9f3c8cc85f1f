//! The line that says what a silent session does. It is gone as soon as something is written.

use crate::{
    stream::{
        activity::{Activity, Pending},
        item::Item,
    },
    terminal::progress::{Amount, ProgressLine},
};
use std::time::{Duration, Instant};

/// Silence after which a person wonders what the session does.
const SILENT: Duration = Duration::from_secs(1);
/// Time for which a notice of the opening of a workspace is true: the worker sends one about each second, and a few may be lost.
const NOTICE_LIFE: Duration = Duration::from_secs(5);

/// The line that says what a silent session does, and since when it is silent.
pub(super) struct Silence {
    activity: Activity,
    pending: Option<Pending>,
    since: Instant,
    /// When the newest notice came; `None`: it says nothing any more.
    noticed_at: Option<Instant>,
    line: Option<ProgressLine>,
}

impl Default for Silence {
    fn default() -> Self {
        let activity = Activity::default();
        Self { pending: activity.pending(), activity, since: Instant::now(), noticed_at: None, line: None }
    }
}

impl Silence {
    /// Removes the line, because something is written.
    pub(super) fn hide(&mut self) {
        self.line = None;
    }

    /// Ends with an item of the stream.
    pub(super) fn end(&mut self, item: &Item) {
        // A heartbeat of the server says nothing about the session, and nothing is written for it.
        if matches!(item, Item::Heartbeat(_)) {
            return;
        }
        // Nothing is written for a notice either, and the wait that it describes has not begun with it.
        if matches!(item, Item::Notice(_)) {
            self.noticed_at = Some(Instant::now());
            self.activity.observe(item);
            self.pending = self.activity.pending();
            if self.line.is_some() {
                self.hide();
                self.tick();
            }
            return;
        }
        self.hide();
        self.activity.observe(item);
        let pending = self.activity.pending();
        if pending != self.pending || pending.as_ref().is_some_and(|pending| pending.restarts) {
            self.since = Instant::now();
        }
        self.pending = pending;
    }

    /// Forgets what an opening does if no further notice says so: it is over, and the notice of its end was lost.
    fn expire_notice(&mut self, now: Instant) {
        if self.noticed_at.is_none_or(|at| now.duration_since(at) < NOTICE_LIFE) {
            return;
        }
        self.noticed_at = None;
        self.activity.forget_opening();
        let pending = self.activity.pending();
        if pending != self.pending {
            self.hide();
            self.pending = pending;
        }
    }

    /// Shows the line after a second of silence.
    pub(super) fn tick(&mut self) {
        self.expire_notice(Instant::now());
        if let Some(pending) = &self.pending
            && self.line.is_none()
            && self.since.elapsed() >= SILENT
        {
            self.line = Some(ProgressLine::since(&pending.what, Amount::Unknown, self.since));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stream::item::{Event, Notice};
    use domain::event::WORKSPACE_PROGRESS;
    use serde_json::json;

    #[test]
    fn an_opening_whose_end_was_lost_is_forgotten() {
        let mut silence = Silence::default();
        let kind = "flotilla.loop.started".to_owned();
        silence.end(&Item::Event(Event { seq: 1, epoch: 1, kind, properties: json!({}), at_ms: 0 }));
        let (kind, properties) = (WORKSPACE_PROGRESS.to_owned(), json!({"stage": "clone"}));
        silence.end(&Item::Notice(Notice { kind, properties }));
        let noticed_at = silence.noticed_at.unwrap();
        for (age, want) in
            [(NOTICE_LIFE / 2, "cloning the repository"), (NOTICE_LIFE, "opening the workspace, then model")]
        {
            silence.expire_notice(noticed_at + age);
            assert_eq!(silence.pending.as_ref().unwrap().what, want);
        }
    }
}
