//! What the length of a conversation costs when the model receives all of it: the time from a prompt to its model request, at several lengths and in
//! new sessions alternately. The worker keeps conversations of this size from one turn to the next, as long as it has room for them. One of 50 MB is
//! too large for that, so each of its prompts loads and lowers it again.

use super::{lone_worker::LoneWorker, sizes::Sizes};
use crate::bench::{
    figure::{Figure, Quantity, Target},
    samples::Samples,
    stored::past::{self, Past, PastView},
    testbed::Servers,
};
use domain::ids::{SessionId, TenantId};
use rpc::v1;
use std::time::Instant;

/// Bytes of the tool output in each turn of the sessions that differ in length only.
const OUTPUT_BYTES: usize = 100;
const TURN_MESSAGES: usize = 3;
/// The length for which there is a target, in messages.
const USUAL_MESSAGES: usize = 200;
/// Limit of the time to a request with so many messages, relative to a new session.
const USUAL_MAX: Target = Target::AtMost(1.1);
/// Limit of the time to load and lower the large conversation; milliseconds.
const LARGE_MAX: Target = Target::AtMost(100.0);
/// Everything stays in the view of the model.
const SETTINGS: &str = r#"{"compaction": {"auto": false, "prune": false}}"#;

/// A session of the measurement.
struct LongSession {
    messages: usize,
    id: String,
    /// From a prompt to the model request.
    begin: Samples,
}

/// Measures every length once in each round, and then the large conversation.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let lone = LoneWorker::start(servers).await;
    let api = lone.api();
    let request = v1::SetSettingsRequest { project_id: String::new(), document: SETTINGS.to_owned() };
    api.settings().set_settings(request).await.expect("stored settings");
    let mut sessions = vec![];
    for turns in sizes.lengths {
        let past = Past { turns, output_bytes: OUTPUT_BYTES, view: PastView::Everything };
        let id = past::session(&lone.testbed, api, &lone.model, past).await;
        sessions.push(LongSession { messages: TURN_MESSAGES * (turns + 1), id, begin: Samples::default() });
    }
    let mut fresh = Samples::default();
    for round in 0..=sizes.rounds {
        // The first turns also open connections, and load each conversation for the first time.
        let mut unused = Samples::default();
        let new = api.session(None).await;
        lone.measure_turn(&new, if round == 0 { &mut unused } else { &mut fresh }).await;
        for LongSession { id, begin, .. } in &mut sessions {
            lone.measure_turn(id, if round == 0 { &mut unused } else { begin }).await;
        }
    }
    let large = measure_large(&lone, sizes).await;
    lone.end().await;
    report(fresh, sessions, large)
}

/// The times of the large conversation.
struct LargeSession {
    name: String,
    /// The store reads all messages.
    load: Samples,
    /// From a prompt to the model request.
    begin: Samples,
}

async fn measure_large(lone: &LoneWorker, sizes: &Sizes) -> LargeSession {
    let (api, testbed) = (lone.api(), &lone.testbed);
    let past = Past { turns: sizes.turns, output_bytes: sizes.output_bytes, view: PastView::Everything };
    let session = past::session(testbed, api, &lone.model, past).await;
    let store = testbed.store(1);
    let tenant: TenantId = api.tenant_id.parse().expect("an id");
    let id: SessionId = session.parse().expect("an id");
    let (mut load, mut begin) = (Samples::default(), Samples::default());
    lone.measure_turn(&session, &mut Samples::default()).await;
    for _ in 0..sizes.rounds {
        let began_at = Instant::now();
        let messages = store.load_conversation(tenant, &id, 0).await.expect("the conversation");
        load.push(began_at.elapsed());
        assert!(messages.len() > TURN_MESSAGES * sizes.turns);
        lone.measure_turn(&session, &mut begin).await;
    }
    let megabytes = (sizes.turns * sizes.output_bytes) as f64 / 1_000_000.0;
    let name = format!("{} messages, {megabytes:.1} MB", TURN_MESSAGES * (sizes.turns + 1));
    LargeSession { name, load, begin }
}

fn report(fresh: Samples, sessions: Vec<LongSession>, large: LargeSession) -> Vec<Figure> {
    let mut figures = vec![];
    for LongSession { messages, begin, .. } in sessions {
        let ratio = Quantity { value: begin.median_ratio(&fresh), unit: "x" };
        let target = if messages == USUAL_MESSAGES + 1 { USUAL_MAX } else { Target::None };
        let name = format!("prompt to model request, {messages} messages");
        figures.push(Figure::number(format!("{name} / new session"), ratio, begin.count(), target));
        figures.push(Figure::times(format!("  {name}"), begin, Target::None));
    }
    let LargeSession { name, load, begin } = large;
    let added = begin.percentile(50).saturating_sub(fresh.percentile(50)).as_secs_f64() * 1_000.0;
    figures.push(Figure::number(
        format!("load, lower and send {name}: more than in a new session, p50"),
        Quantity { value: added, unit: "ms" },
        begin.count(),
        LARGE_MAX,
    ));
    figures.push(Figure::times(format!("  prompt to model request, {name}"), begin, Target::None));
    figures.push(Figure::times(format!("  the store reads {name}"), load, Target::None));
    figures.push(Figure::times("prompt to model request, new session", fresh, Target::None));
    figures
}
