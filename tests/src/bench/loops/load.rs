//! Loading a long conversation and lowering it for a model, without the model: the worker's own functions, in this process.

use super::{
    Sizes,
    past::{self, Past, Seen},
};
use crate::{
    Options,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::Model,
    },
};
use domain::ids::{SessionId, TenantId};
use std::{fs, time::Instant};
use store::Store;

/// Measures a conversation of which the model sees everything, and one that was summed up.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let store = ground.store(2);
    let tenant = ground.stack.api.tenant_id.parse().expect("an id");
    let mut figures = vec![];
    for (seen, what) in [(Seen::Everything, "all seen"), (Seen::Summary, "summed up")] {
        let past = Past { turns: sizes.turns, output_bytes: sizes.output_bytes, seen };
        let session = past::session(&ground, &ground.stack.api, &model, past).await;
        let session = session.parse().expect("an id");
        let before = reset_peak();
        let asked = ask(&store, tenant, &session).await;
        let growth = peak_bytes().saturating_sub(before) as f64 / 1_000_000.0;
        let mut times = Samples::default();
        for _ in 0..sizes.rounds {
            let begun = Instant::now();
            ask(&store, tenant, &session).await;
            times.push(begun.elapsed());
        }
        let megabytes = (sizes.turns * sizes.output_bytes) as f64 / 1_000_000.0;
        let name = format!("load and lower {} messages, {megabytes:.0} MB, {what}", 3 * (sizes.turns + 1));
        figures.push(Figure::times(name, times, Target::AtMost(150.0)));
        figures.push(Figure::number(
            "  messages that the model is sent",
            (asked as f64, ""),
            1,
            Target::None,
        ));
        figures.push(Figure::number(
            "  peak of resident memory beyond before",
            (growth, "MB"),
            1,
            Target::None,
        ));
    }
    store.close().await;
    ground.end().await;
    figures
}

/// Gives how many messages the model would be sent.
async fn ask(store: &Store, tenant: TenantId, session: &SessionId) -> usize {
    let model = llm::catalogue::find_or_default("demo");
    let question = worker::question::find_question(store, tenant, session, &model).await;
    question.expect("a readable session").expect("a prompt").messages.len()
}

/// Forgets the peak of resident memory and gives what is resident now; bytes.
fn reset_peak() -> u64 {
    fs::write("/proc/self/clear_refs", "5").expect("Linux");
    status_bytes("VmRSS:")
}

fn peak_bytes() -> u64 {
    status_bytes("VmHWM:")
}

fn status_bytes(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
