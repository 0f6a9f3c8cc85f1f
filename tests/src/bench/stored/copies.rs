//! Many sessions with an accepted prompt, inserted into Postgres and Redis directly: ten thousand calls would take minutes.

use crate::bench::testbed::Testbed;
use bus::queue::{EnqueueResult, Mode, QueueEntry, TenantShare};
use domain::{
    ids::{SessionId, TenantId},
    session::Class,
};
use sqlx::{AssertSqlSafe, Row as _};

/// Number of entries that are sent to Redis at once.
const ENQUEUED_AT_ONCE: usize = 500;

#[derive(Debug, Clone, Copy)]
pub(in crate::bench) enum Owners {
    /// The owner of the template.
    Same,
    /// A separate tenant for each copy, with a limit of zero running sessions.
    Separate,
}

/// Copies the session `template`, which has one untaken prompt. Every copy is runnable.
pub(in crate::bench) async fn make(
    testbed: &Testbed,
    template: &str,
    owners: Owners,
    count: usize,
) -> Vec<(TenantId, SessionId)> {
    let mut connection = testbed.postgres().await;
    let tenant = match owners {
        Owners::Same => "run.tenant_id",
        Owners::Separate => "gen_random_uuid()",
    };
    let script = format!(
        "create temporary table copy as
           select {tenant} as tenant, '{template}c' || n as id
             from session_run run, generate_series(1, {count}) n where run.session_id = '{template}';
         create temporary table template as select * from session where id = '{template}';
         {COPY}"
    )
    .replace("$template", &format!("'{template}'"));
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.expect("copied sessions");
    let rows = sqlx::query("select tenant, id from copy").fetch_all(&mut connection).await.expect("copies");
    let ids = |row: &sqlx::postgres::PgRow| {
        (TenantId(row.get("tenant")), row.get::<String, _>("id").parse().expect("an id"))
    };
    rows.iter().map(ids).collect()
}

/// Copies all rows of a session with a prompt. Some of the JSON contains the id of the session, too.
const COPY: &str = "
insert into tenant (id, name, running_max) select tenant, tenant::text, 0 from copy on conflict (id) do nothing;
insert into project (tenant_id, id, name, source)
  select c.tenant, p.id, p.name, p.source from copy c, template t, project p
   where p.tenant_id = t.tenant_id and p.id = t.project_id on conflict (tenant_id, id) do nothing;
insert into session (tenant_id, id, project_id, title, agent, provider_id, model_id, source)
  select c.tenant, c.id, t.project_id, t.title, t.agent, t.provider_id, t.model_id, t.source from copy c, template t;
insert into session_run (tenant_id, session_id, event_seq, input_seq, phase, queued_at)
  select c.tenant, c.id, r.event_seq, r.input_seq, 1, now() from copy c, session_run r where r.session_id = $template;
insert into session_input (tenant_id, session_id, seq, kind, dedupe, body_sha256, message_id)
  select c.tenant, c.id, i.seq, i.kind, i.dedupe, i.body_sha256, i.message_id
    from copy c, session_input i where i.session_id = $template;
insert into message (tenant_id, session_id, id, seq, role, info)
  select c.tenant, c.id, m.id, m.seq, m.role, replace(m.info::text, $template, c.id)::json
    from copy c, message m where m.session_id = $template;
insert into part (tenant_id, session_id, message_id, id, seq, kind, data)
  select c.tenant, c.id, p.message_id, p.id, p.seq, p.kind, replace(p.data::text, $template, c.id)::json
    from copy c, part p where p.session_id = $template;
insert into session_event (tenant_id, session_id, seq, epoch, id, kind, properties)
  select c.tenant, c.id, e.seq, e.epoch, e.id, e.kind, replace(e.properties, $template, c.id)
    from copy c, session_event e where e.session_id = $template;
analyze session_run; analyze session; analyze tenant;";

/// Queues sessions in Redis, which may be empty.
pub(in crate::bench) async fn enqueue(bus: &bus::Bus, sessions: &[(TenantId, SessionId)], running_max: u32) {
    for some in sessions.chunks(ENQUEUED_AT_ONCE) {
        let queued = some.iter().map(|(tenant, session)| {
            let share = Some(TenantShare { running_max, weight: 1 });
            bus.enqueue(
                QueueEntry { tenant: *tenant, session, class: Class::default(), share },
                Mode::Rebuild,
            )
        });
        for answer in futures::future::join_all(queued).await {
            // The sweep of a worker may have queued it already, and it may be running.
            assert_ne!(answer.expect("an answer of Redis"), EnqueueResult::Empty);
        }
    }
    bus.complete_rebuild().await.expect("an answer of Redis");
}
