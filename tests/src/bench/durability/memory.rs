//! The memory that a worker uses for an open model stream: a separate worker process, and a model that answers slowly.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::process::Process,
        model::{Model, Plan},
        stored::copies::{self, Owners},
        testbed::{Servers, Testbed, until},
    },
    turn::Watch,
};
use domain::ids::{SessionId, TenantId};
use std::time::Duration;

/// Number of slots of the worker.
const SLOTS: u32 = 1_100;
/// Time between two chunks of a stream: long, because only the memory is measured.
const APART: Duration = Duration::from_secs(4);
/// Number of chunks of a stream: enough that no stream ends during the measurement.
const CHUNKS: usize = 10_000;
/// Number of streams that are started at once.
const STARTED_AT_ONCE: usize = 100;

/// Measures the worker before the streams and while all of them are open.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options =
        Options { workers: 0, slots: SLOTS, model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    testbed.raise_limit(&testbed.stack.api.tenant_id).await;
    let template = testbed.stack.session().await;
    testbed.stack.api.prompt(&template, "bench").await.expect("an accepted prompt");
    let sessions = copies::make(&testbed, &template, Owners::Same, sizes.streams).await;
    sqlx::query("update session_run set phase = 3 where session_id <> $1")
        .bind(&template)
        .execute(&mut testbed.postgres().await)
        .await
        .expect("waiting copies");
    let worker = Process::worker(&testbed.stack, 1);
    // One whole turn, so that code is loaded and connections are open.
    assert_eq!(Watch::start(&testbed.stack.api, &template).await.until_idle().await, "done");
    let idle = worker.resident_bytes();
    model.plan(Plan::Text { chunks: CHUNKS, apart: APART });
    open_streams(&testbed, &model, &sessions).await;
    let open = worker.resident_bytes();
    drop(worker);
    testbed.end().await;
    let (kb, mb) = (1_000.0, 1_000_000.0);
    let each = open.saturating_sub(idle) as f64 / sizes.streams as f64;
    let number = |name: String, value| Figure::number(name, value, sizes.streams, Target::None);
    vec![
        number(
            "worker, resident after one turn".to_owned(),
            Quantity { value: idle as f64 / mb, unit: "MB" },
        ),
        number(
            format!("worker, resident with {} open streams", sizes.streams),
            Quantity { value: open as f64 / mb, unit: "MB" },
        ),
        Figure::number(
            "each stream",
            Quantity { value: each / kb, unit: "kB" },
            sizes.streams,
            Target::AtMost(100.0),
        ),
    ]
}

/// Starts the streams and waits until each has several chunks.
async fn open_streams(testbed: &Testbed, model: &Model, sessions: &[(TenantId, SessionId)]) {
    let (mut postgres, bus) = (testbed.postgres().await, testbed.stack.bus().await);
    for (number, some) in sessions.chunks(STARTED_AT_ONCE).enumerate() {
        let ids: Vec<_> = some.iter().map(|(_, session)| session.as_str().to_owned()).collect();
        sqlx::query("update session_run set phase = 1, queued_at = now() where session_id = any($1)")
            .bind(&ids)
            .execute(&mut postgres)
            .await
            .expect("runnable sessions");
        copies::enqueue(&bus, some, domain::limits::TENANT_RUNNING_MOST).await;
        bus.ring();
        let open = number * STARTED_AT_ONCE + some.len();
        until("the streams are open", || model.progress().requests >= open).await;
    }
    until("each stream has chunks", || model.progress().chunks >= sessions.len() * 3).await;
    let running: i64 = sqlx::query_scalar("select count(*) from session_run where phase = 2")
        .fetch_one(&mut postgres)
        .await
        .expect("the running sessions");
    assert_eq!(usize::try_from(running).expect("few"), sessions.len(), "all streams are open at once");
}
