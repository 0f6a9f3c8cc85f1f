//! What files cost: sessions on repositories of several sizes beside sessions without files, on the same stack in the same run.

use super::{
    figure::{Figure, Quantity, Target},
    model::{Call, Model, Plan},
    samples::Samples,
    sources, stored,
    testbed::{Servers, Testbed},
};
use crate::{Options, api::Api, settings::Outside};
use futures::future::join_all;
use rpc::v1;
use std::{
    fs,
    time::{Duration, Instant},
};
use testkit::git_server::GitServer;

const HOST: &str = "git.example.com";
const TOKEN: &str = "token-of-the-benchmark";
/// Sessions at once.
const CROWD: usize = 16;
/// Steps of a session with calls.
const STEPS: usize = 3;
/// From a prompt to its model request, at most this many times the same without files.
const PROMPT_RATIO: f64 = 1.5;
/// Short sessions a second, at least this share of those without files.
const RATE_RATIO: f64 = 0.8;
/// What the first command of a session takes beyond a later one, with 2,000 files; milliseconds.
const FIRST_CALL_MS: f64 = 40.0;
/// The same for sessions that open at once; milliseconds.
const CROWDED_CALL_MS: f64 = 150.0;
/// CPU time of an opening; milliseconds.
const OPENING_CPU_MS: f64 = 20.0;
/// The size for which the targets count.
const USUAL_FILES: usize = 2_000;

/// The sizes of the measurements.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Files of each repository.
    files: Vec<usize>,
    /// Sessions one after the other.
    rounds: usize,
    /// Groups of sessions at once.
    crowds: usize,
}

/// More files than this take seconds to check out: a quarter of the rounds is enough.
const MANY_FILES: usize = 10_000;

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self { files: vec![20, USUAL_FILES, 40_000], rounds: 12, crowds: 2 }
    }

    /// Returns small sizes, to check that it runs.
    pub fn smoke() -> Self {
        Self { files: vec![3], rounds: 1, crowds: 1 }
    }

    /// The sizes for a repository of so many files.
    fn with(&self, files: usize) -> Self {
        let part = if files > MANY_FILES { 4 } else { 1 };
        Self { files: vec![files], rounds: self.rounds.div_ceil(part), crowds: self.crowds.div_ceil(part) }
    }
}

/// Where the files of a session come from.
struct Kind {
    name: String,
    files: usize,
    source: Option<v1::Source>,
}

/// What sessions of one kind cost.
#[derive(Default)]
struct Costs {
    prompt_to_model: Samples,
    crowded_prompt_to_model: Samples,
    /// Short sessions in a second, one after the other and at once.
    rate: f64,
    crowded_rate: f64,
    cpu_ms: f64,
    /// What the first command takes beyond later ones.
    first_call: Samples,
    later_call: Samples,
    crowded_first_call: Samples,
    opening_cpu_ms: f64,
    /// In a session whose files are open.
    open: OpenCosts,
}

/// What costs grow with the number of files.
#[derive(Default)]
struct OpenCosts {
    /// From a prompt to its model request: the guidance of the files is read.
    prompt_to_model: Samples,
    /// A step that reads, and one that writes a file: two snapshots lie between.
    read_step: Samples,
    write_step: Samples,
    /// From the last byte of a model to the end of a turn that changed a file.
    end_of_turn: Samples,
    diff: Samples,
    export: Samples,
}

/// Measures every kind on one stack, and tells each figure when it is there. The broker has the servers that tests share, where Postgres does not wait for the disk.
pub async fn measure(sizes: &Sizes, mut tell: impl FnMut(&Figure)) -> Vec<Figure> {
    let server = GitServer::start(&[HOST]).await;
    server.require(&format!("x-access-token:{TOKEN}"));
    let model = Model::start().await;
    let outside = Outside {
        hosts: vec![format!("{HOST}={}", server.address)],
        git_certificate: Some(server.certificate.clone()),
        ..Outside::default()
    };
    let options = Options { model_url: Some(model.url.clone()), broker: true, outside, ..Options::default() };
    let testbed = Testbed::start(&Servers::Shared, options).await;
    let api = &testbed.stack.api;
    let prefix = format!("https://{HOST}/acme/");
    api.set_environment("", &serde_json::json!({"git": {"credentials": {prefix: "TOKEN"}}})).await;
    api.set_secret("TOKEN", TOKEN).await;
    let mut kinds = vec![Kind { name: "without files".to_owned(), files: 0, source: None }];
    for files in &sizes.files {
        let repository = sources::repository_of(*files);
        let source = Some(sources::upload(api, &repository).await);
        kinds.push(Kind { name: format!("upload of {files} files"), files: *files, source });
        let path = format!("acme/{files}.git");
        server.push(&path, &repository);
        let from = Some(v1::source::From::GitUrl(format!("https://{HOST}/{path}")));
        let source = Some(v1::Source { from, revision: String::new() });
        kinds.push(Kind { name: format!("private repository of {files} files"), files: *files, source });
    }
    let mut figures = vec![];
    let mut without: Option<Costs> = None;
    for kind in kinds {
        let sizes = &sizes.with(kind.files);
        let costs = costs(api, &model, &kind, sizes).await;
        let of_kind = report(&kind, &costs, without.as_ref(), sizes);
        of_kind.iter().for_each(&mut tell);
        figures.extend(of_kind);
        without.get_or_insert(costs);
    }
    testbed.end().await;
    figures
}

async fn costs(api: &Api, model: &Model, kind: &Kind, sizes: &Sizes) -> Costs {
    let mut costs = Costs::default();
    // The first sessions of a commit read it.
    text_session(api, model, kind).await;
    tool_sessions(api, model, kind, 1).await;

    let (begun, cpu) = (Instant::now(), machine_cpu());
    for _ in 0..sizes.rounds {
        costs.prompt_to_model.push(text_session(api, model, kind).await);
    }
    costs.rate = sizes.rounds as f64 / begun.elapsed().as_secs_f64();
    costs.cpu_ms = milliseconds(machine_cpu().saturating_sub(cpu)) / sizes.rounds as f64;
    let begun = Instant::now();
    for _ in 0..sizes.crowds {
        costs.crowded_prompt_to_model.extend(text_sessions(api, model, kind).await);
    }
    costs.crowded_rate = (CROWD * sizes.crowds) as f64 / begun.elapsed().as_secs_f64();

    let cpu = machine_cpu();
    for _ in 0..sizes.rounds {
        for mut steps in tool_sessions(api, model, kind, 1).await {
            costs.first_call.push(steps.remove(0));
            costs.later_call.extend(steps.into_iter().collect());
        }
    }
    costs.opening_cpu_ms = milliseconds(machine_cpu().saturating_sub(cpu)) / sizes.rounds as f64;
    for _ in 0..sizes.crowds {
        for steps in tool_sessions(api, model, kind, CROWD).await {
            costs.crowded_first_call.push(steps[0]);
        }
    }
    costs.open = open_costs(api, model, kind, sizes.rounds).await;
    costs
}

/// Measures turns of one session, and what people do with its files.
async fn open_costs(api: &Api, model: &Model, kind: &Kind, rounds: usize) -> OpenCosts {
    let mut costs = OpenCosts::default();
    let session = api.session(kind.source.clone()).await;
    for (call, steps) in [(Call::Read, &mut costs.read_step), (Call::Write, &mut costs.write_step)] {
        for round in 0..=rounds.div_ceil(STEPS) {
            model.plan(Plan::Tools { steps: STEPS, call });
            let prompted_at = turn(api, &session).await;
            let idle_at = Instant::now();
            let log = model.take();
            // The first turn opens the files.
            if round == 0 {
                continue;
            }
            costs.prompt_to_model.push(log.requests[0] - prompted_at);
            steps.extend(
                log.answers.iter().zip(&log.requests[1..]).map(|(answer, next)| *next - *answer).collect(),
            );
            if matches!(call, Call::Write)
                && let Some(answered_at) = log.answers.last()
            {
                costs.end_of_turn.push(idle_at - *answered_at);
            }
        }
    }
    for _ in 0..rounds.div_ceil(STEPS) {
        let begun = Instant::now();
        let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
        api.sessions().get_session_diff(request).await.expect("a diff");
        costs.diff.push(begun.elapsed());
        let begun = Instant::now();
        let request = v1::ExportSessionRequest { session_id: session.clone(), squash: false };
        let mut pieces = api.sessions().export_session(request).await.expect("an export").into_inner();
        while pieces.message().await.expect("a piece").is_some() {}
        costs.export.push(begun.elapsed());
    }
    delete(api, session).await;
    costs
}

/// Runs a session that only writes a text. Returns the time from its prompt to its model request.
async fn text_session(api: &Api, model: &Model, kind: &Kind) -> Duration {
    model.plan(Plan::Text { chunks: 20, apart: Duration::from_millis(1) });
    let prompted_at = run(api, kind).await;
    model.take().requests[0] - prompted_at
}

/// The same for sessions at once.
async fn text_sessions(api: &Api, model: &Model, kind: &Kind) -> Samples {
    model.plan(Plan::Text { chunks: 20, apart: Duration::from_millis(1) });
    let mut prompted: Vec<Instant> = join_all((0..CROWD).map(|_| run(api, kind))).await;
    let mut requests = model.take().requests;
    // Each prompt has one request. Which one it is makes no difference to their distribution.
    prompted.sort();
    requests.sort();
    requests.into_iter().zip(prompted).map(|(request, prompt)| request - prompt).collect()
}

/// Runs sessions at once that run commands. Returns the times of their steps.
async fn tool_sessions(api: &Api, model: &Model, kind: &Kind, count: usize) -> Vec<Vec<Duration>> {
    model.plan(Plan::Tools { steps: STEPS, call: Call::True });
    join_all((0..count).map(|_| run(api, kind))).await;
    model.take().sessions.values().map(|session| session.steps().collect()).collect()
}

/// Runs a session to the end of its first turn, and deletes it. Returns the time of its prompt.
async fn run(api: &Api, kind: &Kind) -> Instant {
    let session = api.session(kind.source.clone()).await;
    let prompted_at = turn(api, &session).await;
    delete(api, session).await;
    prompted_at
}

async fn delete(api: &Api, session_id: String) {
    let request = v1::DeleteSessionRequest { session_id };
    api.sessions().delete_session(request).await.expect("a deleted session");
}

/// Runs a turn to its end. Returns the time of its prompt.
async fn turn(api: &Api, session: &str) -> Instant {
    let mut watch = stored::past::watch(api, session).await;
    let prompted_at = Instant::now();
    api.prompt(session, "bench").await.expect("an accepted prompt");
    assert_eq!(watch.until_idle().await, "done");
    prompted_at
}

fn report(kind: &Kind, costs: &Costs, without: Option<&Costs>, sizes: &Sizes) -> Vec<Figure> {
    let name = |what: &str| format!("{}: {what}", kind.name);
    let number = |what: &str, value: f64, unit, count, target| {
        Figure::number(name(what), Quantity { value, unit }, count, target)
    };
    let (rounds, crowd) = (sizes.rounds, sizes.crowds * CROWD);
    let clone = |samples: &Samples| samples.iter().collect();
    let mut figures = vec![
        Figure::times(name("prompt -> model request"), clone(&costs.prompt_to_model), Target::None),
        Figure::times(name("the same, 16 at once"), clone(&costs.crowded_prompt_to_model), Target::None),
        number("short sessions a second", costs.rate, "/s", rounds, Target::None),
        number("the same, 16 at once", costs.crowded_rate, "/s", crowd, Target::None),
        number("CPU time of the machine for a short session", costs.cpu_ms, "ms", rounds, Target::None),
        Figure::times(name("first command"), clone(&costs.first_call), Target::None),
        Figure::times(name("later command"), clone(&costs.later_call), Target::None),
        Figure::times(name("first command, 16 at once"), clone(&costs.crowded_first_call), Target::None),
    ];
    let open = &costs.open;
    for (what, samples) in [
        ("open files: prompt -> model request", &open.prompt_to_model),
        ("open files: step that reads", &open.read_step),
        ("open files: step that writes", &open.write_step),
        ("open files: last byte -> idle, after a change", &open.end_of_turn),
        ("open files: diff", &open.diff),
        ("open files: export", &open.export),
    ] {
        figures.push(Figure::times(name(what), clone(samples), Target::None));
    }
    let Some(without) = without else { return figures };
    let is_usual = kind.files == USUAL_FILES;
    let target = |target| if is_usual { target } else { Target::None };
    let first_ms = milliseconds(costs.first_call.percentile(50));
    let beyond = first_ms - milliseconds(costs.later_call.percentile(50));
    let crowded_ms = milliseconds(costs.crowded_first_call.percentile(50));
    figures.extend([
        number(
            "prompt -> model request / without files",
            costs.prompt_to_model.median_ratio(&without.prompt_to_model),
            "x",
            rounds,
            target(Target::AtMost(PROMPT_RATIO)),
        ),
        number(
            "short sessions a second, 16 at once / without files",
            costs.crowded_rate / without.crowded_rate,
            "x",
            crowd,
            target(Target::AtLeast(RATE_RATIO)),
        ),
        number("first command - later one", beyond, "ms", rounds, target(Target::AtMost(FIRST_CALL_MS))),
        number(
            "p50 of 16 openings at once",
            crowded_ms,
            "ms",
            crowd,
            target(Target::AtMost(CROWDED_CALL_MS)),
        ),
        number(
            "CPU time of the machine for an opening",
            costs.opening_cpu_ms - without.opening_cpu_ms,
            "ms",
            rounds,
            target(Target::AtMost(OPENING_CPU_MS)),
        ),
    ]);
    figures
}

/// The time that all processors of the machine have worked: commands, helpers and servers included.
fn machine_cpu() -> Duration {
    /// Clock ticks per second in the statistics of Linux.
    const TICKS: u64 = 100;
    let statistics = fs::read_to_string("/proc/stat").expect("statistics of the processors");
    let line = statistics.lines().next().expect("the line of all processors");
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // User, nice, system; interrupts.
    Duration::from_millis((ticks[..3].iter().sum::<u64>() + ticks[5] + ticks[6]) * 1_000 / TICKS)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
