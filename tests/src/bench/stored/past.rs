//! Sessions with a long past: one real turn, preceded by copies of it that are inserted into Postgres directly.

use crate::{
    api::Api,
    bench::{
        model::{Call, Model, Plan},
        testbed::Testbed,
    },
    turn::Watch,
};
use rpc::v1::{self, prompt_part::Kind};
use sqlx::AssertSqlSafe;

/// The past of a session.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Past {
    /// Number of copies of its first turn, which has three messages.
    pub(in crate::bench) turns: usize,
    /// Size of the tool output in each copy; bytes.
    pub(in crate::bench) output_bytes: usize,
    /// The part of it that the model receives.
    pub(in crate::bench) view: PastView,
}

/// The part of the past that the model receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum PastView {
    Everything,
    /// A summary, and the turn after it.
    Summary,
}

/// Creates a session with a past.
pub(in crate::bench) async fn session(testbed: &Testbed, api: &Api, model: &Model, past: Past) -> String {
    let session = api.session(None).await;
    model.plan(Plan::Tools { steps: 1, call: Call::Todos });
    turn(api, &session, |prompt| prompt.text = "bench".to_owned()).await;
    let turn_events = api.get(&session).await.event_seq;
    if past.view == PastView::Summary {
        model.plan(Plan::Tools { steps: 0, call: Call::Todos });
        turn(api, &session, compaction).await;
        turn(api, &session, |prompt| prompt.text = "bench".to_owned()).await;
    }
    repeat(testbed, &session, turn_events, past).await;
    session
}

/// Sends a prompt and waits for the end of its turn. Does not read the past.
pub(in crate::bench) async fn turn(
    api: &Api,
    session: &str,
    prompt: impl FnOnce(&mut v1::AcceptPromptRequest),
) {
    let mut watch = watch(api, session).await;
    api.prompt_with(session, prompt).await.expect("an accepted prompt");
    assert_eq!(watch.until_idle().await, "done");
}

/// Subscribes to the future events of a session.
pub(in crate::bench) async fn watch(api: &Api, session: &str) -> Watch {
    let cursor = format!("v1.{}", api.get(session).await.event_seq);
    Watch::from(api, session, &cursor).await
}

/// Turns a prompt into one that requests a summary.
pub(in crate::bench) fn compaction(prompt: &mut v1::AcceptPromptRequest) {
    prompt.parts.push(Kind::Compaction(v1::CompactionPart {}).into());
}

/// Inserts copies of the first turn, which has `turn_events` events, before it.
async fn repeat(testbed: &Testbed, session: &str, turn_events: u64, past: Past) {
    let script = COPY
        .replace("$session", &format!("'{session}'"))
        .replace("$turns", &past.turns.to_string())
        .replace("$lines", &past.output_bytes.div_ceil(FILLER_LINE_BYTES).to_string())
        .replace("$events", &turn_events.to_string());
    let mut postgres = testbed.postgres().await;
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut postgres).await.expect("a long past");
}

/// Length of one line of output; bytes.
const FILLER_LINE_BYTES: usize = 33;
/// Moves the existing rows behind the copies, in two steps to avoid conflicts of positions. References between copied rows are
/// renamed with them. Checks of foreign keys are off, because they would take minutes.
const COPY: &str = r"
set statement_timeout = 0;
set session_replication_role = replica;
create temporary table past as select n from generate_series(0, $turns - 1) n;
create temporary table filler as select to_jsonb(string_agg(md5(n::text), E'\n')) as output from generate_series(1, $lines) n;
create function pg_temp.renamed(body text, n bigint) returns text language sql
  as $$ select regexp_replace(body, '((msg|prt)_[0-9A-Za-z]+)', '\1c' || n, 'g') $$;
update message set seq = seq + 1000000000 where session_id = $session;
update message set seq = seq - 1000000000 + $turns * $events where session_id = $session;
update part set seq = seq + $turns * $events where session_id = $session;
update session_event set seq = seq + 1000000000 where session_id = $session;
update session_event set seq = seq - 1000000000 + $turns * $events where session_id = $session;
update session_run set event_seq = event_seq + $turns * $events where session_id = $session;
insert into message (tenant_id, session_id, id, seq, role, info)
  select tenant_id, session_id, id || 'c' || n, seq - ($turns - n) * $events, role, pg_temp.renamed(info::text, n)::json
    from message, past where session_id = $session and seq <= ($turns + 1) * $events;
insert into part (tenant_id, session_id, message_id, id, seq, kind, data)
  select tenant_id, session_id, message_id || 'c' || n, id || 'c' || n, seq - ($turns - n) * $events, kind,
         case kind when 'tool' then jsonb_set(pg_temp.renamed(data::text, n)::jsonb, '{state,output}', output)::json
                   else pg_temp.renamed(data::text, n)::json end
    from part, past, filler where session_id = $session and seq <= ($turns + 1) * $events;
insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
  select tenant_id, session_id, seq - ($turns - n) * $events, epoch, id || 'c' || n, kind, pg_temp.renamed(properties, n)
    from session_event, past where session_id = $session and seq <= ($turns + 1) * $events;
analyze message; analyze part; analyze session_event;";
