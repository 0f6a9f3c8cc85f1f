//! What an open model stream takes of a worker's memory: a worker process of its own, and a model that answers slowly.

use super::{
    Sizes,
    copies::{self, Owners},
};
use crate::{
    Options,
    bench::{
        figure::{Figure, Target},
        ground::{Ground, Servers, until},
        model::{Model, Plan},
        process::Process,
    },
    turn::Watch,
};
use domain::ids::{SessionId, TenantId};
use std::time::Duration;

/// Slots of the worker.
const SLOTS: u32 = 1_100;
/// Between two chunks of a stream: slow, as it is the memory that is measured.
const APART: Duration = Duration::from_secs(4);
/// Chunks of a stream: none ends while it is measured.
const CHUNKS: usize = 10_000;
/// Streams that are begun at once.
const BEGUN_AT_ONCE: usize = 100;

/// Measures the worker before the streams and while all of them are open.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options =
        Options { workers: 0, slots: SLOTS, model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    ground.widen(&ground.stack.api.tenant_id).await;
    let template = ground.stack.session().await;
    ground.stack.api.prompt(&template, "bench").await.expect("an accepted prompt");
    let sessions = copies::make(&ground, &template, Owners::Same, sizes.streams).await;
    sqlx::query("update session_run set phase = 3 where session_id <> $1")
        .bind(&template)
        .execute(&mut ground.postgres().await)
        .await
        .expect("copies that wait");
    let worker = Process::worker(&ground.stack, 1);
    // One whole turn, so that code and connections are there.
    assert_eq!(Watch::start(&ground.stack.api, &template).await.until_idle().await, "done");
    let idle = worker.resident_bytes();
    model.plan(Plan::Text { chunks: CHUNKS, apart: APART });
    open_streams(&ground, &model, &sessions).await;
    let open = worker.resident_bytes();
    drop(worker);
    ground.end().await;
    let (kb, mb) = (1_000.0, 1_000_000.0);
    let each = open.saturating_sub(idle) as f64 / sizes.streams as f64;
    let number = |name: String, value| Figure::number(name, value, sizes.streams, Target::None);
    vec![
        number("worker, resident after one turn".to_owned(), (idle as f64 / mb, "MB")),
        number(format!("worker, resident with {} open streams", sizes.streams), (open as f64 / mb, "MB")),
        Figure::number("each stream", (each / kb, "kB"), sizes.streams, Target::AtMost(100.0)),
    ]
}

/// Begins the streams and waits until each has brought several chunks.
async fn open_streams(ground: &Ground, model: &Model, sessions: &[(TenantId, SessionId)]) {
    let (mut postgres, bus) = (ground.postgres().await, ground.stack.bus().await);
    for (number, some) in sessions.chunks(BEGUN_AT_ONCE).enumerate() {
        let ids: Vec<_> = some.iter().map(|(_, session)| session.as_str().to_owned()).collect();
        sqlx::query("update session_run set phase = 1, queued_at = now() where session_id = any($1)")
            .bind(&ids)
            .execute(&mut postgres)
            .await
            .expect("runnable sessions");
        copies::enqueue(&bus, some, domain::limits::TENANT_RUNNING_MOST).await;
        bus.ring();
        let open = number * BEGUN_AT_ONCE + some.len();
        until("the streams are open", || model.progress().0 >= open).await;
    }
    until("each stream brings chunks", || model.progress().1 >= sessions.len() * 3).await;
    let running: i64 = sqlx::query_scalar("select count(*) from session_run where phase = 2")
        .fetch_one(&mut postgres)
        .await
        .expect("the running sessions");
    assert_eq!(usize::try_from(running).expect("few"), sessions.len(), "all streams are open at once");
}
