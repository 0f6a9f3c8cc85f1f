//! What a hostile tenant can do to another one. Tenant A runs every known way to starve others at the same time, and tenant B works as
//! usual: each of its samples is a new session, from the prompt to the first result of a tool. In turn, a session starts from nothing and from a repository.

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
        sources,
    },
    turn::{Watch, bash},
};
use rpc::v1;
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
    let repository = sources::upload(&other, &sources::repository_of(sizes.other_files)).await;
    let with_files = format!("with {} files", sizes.other_files);
    let kinds = [
        Kind { name: "without files".to_owned(), source: None },
        Kind { name: with_files, source: Some(repository) },
    ];
    // Before that, caches are cold, the commit is not read, and the first sandbox of the machine starts.
    for kind in &kinds {
        sample(&other, kind).await;
    }
    let alone = samples(&other, &kinds, sizes.alone).await;

    let (services, servers) = (Meter::start(&victim.services), Meter::start(&victim.servers));
    let attackers = Attackers::start(&victim.gateway_url, &hostile, sizes);
    tokio::time::sleep(sizes.warm_up).await;
    let attacked = samples(&other, &kinds, sizes.attacked).await;
    let (services, servers) = (services.stop(), servers.stop());
    let tallies = attackers.stop().await;
    let measured = kinds.iter().zip(alone.iter().zip(&attacked));
    let mut figures: Vec<_> =
        measured.flat_map(|(kind, (alone, attacked))| timings(&kind.name, alone, attacked)).collect();
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

/// A kind of sessions of the other tenant.
struct Kind {
    name: String,
    /// What their files start from; `None`: they have none.
    source: Option<v1::Source>,
}

/// How long the samples of one kind took, alone and under attack.
fn timings(kind: &str, alone: &[Timeline], attacked: &[Timeline]) -> Vec<Figure> {
    let totals = |timelines: &[Timeline]| timelines.iter().map(Timeline::total).collect::<Samples>();
    let p99 = |timelines: &[Timeline]| totals(timelines).percentile(99).as_secs_f64();
    let ratio = p99(attacked) / p99(alone);
    let mut figures = vec![];
    for (when, timelines) in [("alone", alone), ("under attack", attacked)] {
        let name = format!("prompt to first tool result, {kind}, {when}");
        figures.push(Figure::times(name, totals(timelines), Target::None));
        for (stage, samples) in STAGES.into_iter().zip(timeline::by_stage(timelines)) {
            figures.push(Figure::times(format!("  {kind}, {when}: {stage}"), samples, Target::None));
        }
    }
    figures.push(Figure::number(
        format!("p99 under attack, times that alone, {kind}"),
        Quantity { value: ratio, unit: "x" },
        attacked.len(),
        Target::AtMost(SLOWER_MAX),
    ));
    figures
}

/// Samples for a while, one after the other, the kinds in turn. Each kind has at least one.
async fn samples<const KINDS: usize>(
    api: &Api,
    kinds: &[Kind; KINDS],
    during: Duration,
) -> [Vec<Timeline>; KINDS] {
    let (began, mut samples) = (Instant::now(), [const { vec![] }; KINDS]);
    loop {
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            samples.push(sample(api, kind).await);
            tokio::time::sleep(PAUSE).await;
        }
        if began.elapsed() >= during {
            return samples;
        }
    }
}

async fn sample(api: &Api, kind: &Kind) -> Timeline {
    let mut timeline = Timeline::begin();
    let work = async {
        let session = api.session(kind.source.clone()).await;
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
