//! How far a stream has sent the events of its sessions: the cursor of each item.

use super::cursor::{SESSIONS_MAX, TenantCursor};
use domain::ids::SessionId;
use std::{collections::HashSet, sync::Arc};
use store::log::feed::Horizon;

/// The progress of a feed, or of a stream that resumes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    cursor: Arc<TenantCursor>,
    /// The sessions with events since the horizon was last moved.
    recent: HashSet<SessionId>,
}

impl Progress {
    /// The progress of a stream that resumes from a cursor.
    pub(crate) fn since(cursor: TenantCursor) -> Self {
        Self { cursor: Arc::new(cursor), recent: HashSet::new() }
    }

    /// The cursor after everything that was sent.
    pub(crate) fn cursor(&self) -> &Arc<TenantCursor> {
        &self.cursor
    }

    /// Records that the events of a session up to this position were sent.
    pub(crate) fn send(&mut self, session: &SessionId, seq: u64) {
        let sessions = &mut Arc::make_mut(&mut self.cursor).sessions;
        if sessions.len() < SESSIONS_MAX || sessions.contains_key(session) {
            sessions.insert(session.clone(), seq);
            self.recent.insert(session.clone());
        }
    }

    /// Moves the horizon. Positions are kept until the next move: an event that was sent before this move can belong to a
    /// transaction after the horizon.
    pub(crate) fn reach(&mut self, horizon: Horizon) {
        let cursor = Arc::make_mut(&mut self.cursor);
        if cursor.horizon < horizon {
            cursor.horizon = horizon;
            cursor.sessions.retain(|session, _| self.recent.contains(session));
            self.recent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stay_for_two_moves_of_the_horizon() {
        let session = |number: usize| format!("ses_{number}").parse::<SessionId>().expect("id");
        let mut progress = Progress::default();
        progress.reach(5);
        progress.send(&session(1), 3);
        progress.send(&session(1), 4);
        progress.reach(5);
        progress.reach(6);
        progress.send(&session(2), 1);
        assert_eq!(progress.cursor().to_string(), "t1.6.ses_1-4.ses_2-1");
        progress.reach(7);
        assert_eq!(progress.cursor().to_string(), "t1.7.ses_2-1");
        for number in 0..100 {
            progress.send(&session(number), 9);
        }
        assert_eq!(progress.cursor().sessions.len(), SESSIONS_MAX);
        assert_eq!(progress.cursor().sessions[&session(2)], 9, "a known session moves on");
    }
}
