//! The comparisons: answers, control rows, lists and mailboxes.

use super::{Pair, SESSIONS};
use domain::ids::SessionId;
use e2e::sim::postgres::{AcceptResult, Input, Phase, Run};
use sqlx::Row as _;
use store::{control::candidate::Candidate, error::Error};
use uuid::Uuid;

impl Pair {
    /// Compares the results of accepting an input.
    pub(super) fn compare_accepted(&mut self, real: Result<bool, Error>, model: AcceptResult) {
        let real = match real {
            Ok(true) => AcceptResult::Wakes,
            Ok(false) => AcceptResult::Quietly,
            Err(Error::Quarantined) => AcceptResult::No,
            Err(error) => panic!("{error:?}"),
        };
        self.refused += usize::from(real == AcceptResult::No);
        assert_eq!(real, model);
    }

    /// Reads every control row of the real store.
    async fn rows(&mut self) -> Vec<Run> {
        let rows = sqlx::query(
            "select session_id, epoch, write_seq, event_seq, input_seq, input_ack, cancel_seq, phase, owner, attempts,
                    wake_at is not null as wakes
               from session_run where tenant_id = $1",
        )
        .bind(self.tenant.0)
        .fetch_all(&mut self.sql)
        .await
        .unwrap();
        let number = |row: &sqlx::postgres::PgRow, name| u64::try_from(row.get::<i64, _>(name)).unwrap();
        let phases = [Phase::Idle, Phase::Runnable, Phase::Running, Phase::Waiting, Phase::Quarantined];
        let run = |row: &sqlx::postgres::PgRow| Run {
            exists: true,
            epoch: number(row, "epoch"),
            write_seq: number(row, "write_seq"),
            event_seq: number(row, "event_seq"),
            input_seq: number(row, "input_seq"),
            input_ack: number(row, "input_ack"),
            cancel_seq: number(row, "cancel_seq"),
            phase: phases[usize::try_from(row.get::<i16, _>("phase")).unwrap()],
            owner: row
                .get::<Option<Uuid>, _>("owner")
                .map(|owner| self.workers.iter().position(|worker| *worker == owner).unwrap()),
            attempts: u8::try_from(row.get::<i16, _>("attempts")).unwrap(),
            wakes: row.get("wakes"),
            ..Run::default()
        };
        let find = |session: &SessionId| {
            rows.iter().find(|row| row.get::<&str, _>("session_id") == session.as_str())
        };
        self.sessions.iter().map(|session| find(session).map_or_else(Run::default, run)).collect()
    }

    pub(super) async fn compare(&mut self) {
        let real = self.rows().await;
        let rows = self.model.runs.iter();
        let model: Vec<Run> = rows.map(|run| Run { inputs: vec![], parent: None, ..run.clone() }).collect();
        assert_eq!(real, model);
        let places = |listed: Vec<Candidate>| {
            let ours = listed.into_iter().filter(|one| one.target.tenant == self.tenant);
            let mut numbers: Vec<usize> = ours
                .map(|one| self.sessions.iter().position(|session| *session == one.target.session).unwrap())
                .collect();
            numbers.sort_unstable();
            numbers
        };
        let runnable = places(self.store.list_runnable(1_000).await.unwrap());
        let orphaned = places(self.store.list_orphaned(1_000).await.unwrap());
        let all = 0..SESSIONS;
        let is_runnable = |session: &usize| self.model.runs[*session].phase == Phase::Runnable;
        assert_eq!(runnable, all.clone().filter(is_runnable).collect::<Vec<_>>());
        assert_eq!(orphaned, all.filter(|session| self.model.is_orphaned(*session)).collect::<Vec<_>>());
    }

    pub(super) async fn compare_inputs(&self) {
        for (session, run) in self.sessions.iter().zip(&self.model.runs) {
            let real = self.store.list_inputs(self.tenant, session, 0).await.unwrap();
            let kinds: Vec<&str> = real.iter().map(|input| input.kind.as_str()).collect();
            let model = run.inputs.iter().map(|input| match input {
                Input::Prompt(_) => "prompt",
                Input::Abort(_) => "abort",
                Input::Answer(_) => "child",
            });
            assert_eq!(kinds, model.collect::<Vec<_>>());
        }
    }
}
