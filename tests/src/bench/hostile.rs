//! What a hostile tenant can do to another one. Tenant A runs every known way to starve others at the same time, and tenant B works as
//! usual: each of its samples is a new session, from the prompt to the first result of a tool.

mod attack;
pub mod attackers;
mod connections;
mod http;
mod round;
mod sandbox;
pub mod sizes;
mod timeline;

use self::{
    attackers::Attackers,
    timeline::{ACCEPTED, STAGES, Timeline},
};
use crate::{
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::usage::{MeasuredProcess, Meter},
        samples::Samples,
    },
    turn::{Watch, bash},
};
use sizes::Sizes;
use std::time::{Duration, Instant};

/// How much slower the other tenant may be, at the 99th percentile.
const SLOWER_MAX: f64 = 2.0;
/// Resident memory that no service may exceed; MB.
const MEMORY_MAX_MB: f64 = 300.0;
/// Pause of the other tenant between two prompts: it is a person, not a load.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time of one sample. Beyond that the tenant counts as starved.
const SAMPLE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Victim {
    pub gateway_url: String,
    pub operator_key: String,
    /// The services, whose memory is bounded.
    pub services: Vec<MeasuredProcess>,
    pub servers: Vec<MeasuredProcess>,
}

/// Measures the other tenant alone, and then under attack.
pub async fn measure(victim: &Victim, sizes: &Sizes) -> Vec<Figure> {
    let operator = Api::with_key(&victim.gateway_url, &victim.operator_key);
    let hostile = Api::created_by(&operator, &victim.gateway_url, "hostile").await;
    let other = Api::created_by(&operator, &victim.gateway_url, "other").await;
    // Before that, caches are cold and the first sandbox of the machine starts.
    sample(&other).await;
    let alone = samples(&other, sizes.alone).await;

    let (services, servers) = (Meter::start(&victim.services), Meter::start(&victim.servers));
    let attackers = Attackers::start(&victim.gateway_url, &hostile, sizes);
    tokio::time::sleep(sizes.warm_up).await;
    let attacked = samples(&other, sizes.attacked).await;
    let (services, servers) = (services.stop(), servers.stop());
    let tallies = attackers.stop().await;
    let mut figures = timings(&alone, &attacked);
    for (usages, memory) in [(services, Target::AtMost(MEMORY_MAX_MB)), (servers, Target::None)] {
        figures.extend(usages.iter().flat_map(|usage| usage.figures(memory)));
    }
    for tally in tallies {
        let name = format!("attack {}: done {}, {}", tally.attack, tally.done, tally.refusals());
        let rounds = Quantity { value: tally.rounds() as f64, unit: "rounds" };
        figures.push(Figure::number(name, rounds, 1, Target::None));
    }
    figures
}

/// How long the samples of the other tenant took, alone and under attack.
fn timings(alone: &[Timeline], attacked: &[Timeline]) -> Vec<Figure> {
    let totals = |timelines: &[Timeline]| timelines.iter().map(Timeline::total).collect::<Samples>();
    let p99 = |timelines: &[Timeline]| totals(timelines).percentile(99).as_secs_f64();
    let ratio = p99(attacked) / p99(alone);
    let mut figures = vec![];
    for (when, timelines) in [("alone", alone), ("under attack", attacked)] {
        let name = format!("prompt to first tool result, {when}");
        figures.push(Figure::times(name, totals(timelines), Target::None));
        for (stage, samples) in STAGES.into_iter().zip(timeline::by_stage(timelines)) {
            figures.push(Figure::times(format!("  {when}: {stage}"), samples, Target::None));
        }
    }
    figures.push(Figure::number(
        "p99 under attack, times that alone",
        Quantity { value: ratio, unit: "x" },
        attacked.len(),
        Target::AtMost(SLOWER_MAX),
    ));
    figures
}

/// Samples for a while, one after the other.
async fn samples(api: &Api, during: Duration) -> Vec<Timeline> {
    let (began, mut samples) = (Instant::now(), vec![]);
    while began.elapsed() < during {
        samples.push(sample(api).await);
        tokio::time::sleep(PAUSE).await;
    }
    samples
}

async fn sample(api: &Api) -> Timeline {
    let mut timeline = Timeline::begin();
    let work = async {
        let session = api.session(None).await;
        let mut watch = Watch::start(api, &session).await;
        timeline = Timeline::begin();
        api.prompt(&session, &bash("true")).await.expect("an accepted prompt");
        timeline.note(ACCEPTED);
        while !watch.next().await.is_some_and(|event| timeline.note_event(&event)) {}
    };
    // A sample without a result counts with the time until now.
    tokio::time::timeout(SAMPLE_MAX, work).await.ok();
    timeline
}
