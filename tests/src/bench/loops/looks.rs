//! What it costs to look at the files of a session when one of many has changed: its diff, and what `checkout`, pushes, forks and copies read, compared with
//! `git status` in the same files.

use super::sizes::Sizes;
use crate::{
    Options,
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Call, Model, Plan},
        samples::Samples,
        stored::past,
        testbed::{Servers, Testbed},
    },
};
use rpc::v1;
use std::time::Instant;

/// The goal for a look at one changed file, in times of `git status`.
const STATUS_RATIO_MAX: f64 = 1.5;
/// Lines of each file: about 4 KB, as in the report that asked for this measurement.
const LINES: usize = 90;

/// Measures `git status` and each look alternately.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let api = &testbed.stack.api;
    let repository = repository(sizes.looked_at);
    let session = testbed.stack.session_on(&repository).await;
    model.plan(Plan::Tools { steps: 1, call: Call::Write });
    past::turn(api, &session, |prompt| prompt.text = "change a file".to_owned()).await;
    std::fs::write(repository.path().join("src/d0/f0"), "changed").expect("a file");
    let [mut status, mut diff, mut export] = [Samples::default(), Samples::default(), Samples::default()];
    for round in 0..=sizes.rounds {
        let begun = Instant::now();
        repository.git(&["status", "--porcelain"]);
        let status_took = begun.elapsed();
        let begun = Instant::now();
        look(api, &session).await;
        let diff_took = begun.elapsed();
        let begun = Instant::now();
        take(api, &session).await;
        // The first round warms the caches of both.
        if round > 0 {
            status.push(status_took);
            diff.push(diff_took);
            export.push(begun.elapsed());
        }
    }
    testbed.end().await;
    let ratio = |name: &str, samples: &Samples| {
        let quantity = Quantity { value: samples.median_ratio(&status), unit: "x" };
        let name = format!("{name} of one changed file of {} / git status", sizes.looked_at);
        Figure::number(name, quantity, samples.count(), Target::AtMost(STATUS_RATIO_MAX))
    };
    let ratios = [ratio("diff", &diff), ratio("export", &export)];
    let times = [("git status", status), ("diff", diff), ("export", export)];
    let times = times.map(|(name, samples)| {
        Figure::times(format!("{name} of one changed file of {}", sizes.looked_at), samples, Target::None)
    });
    times.into_iter().chain(ratios).collect()
}

fn repository(files: usize) -> testkit::git::Repository {
    let contents: Vec<(String, String)> = (0..files)
        .map(|number| {
            let line = |line: usize| {
                format!("{:040x}\n", (number * LINES + line).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            };
            (format!("src/d{}/f{number}", number % 400), (0..LINES).map(line).collect())
        })
        .collect();
    let files: Vec<(&str, &str)> =
        contents.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    testkit::git::repository(&files)
}

async fn look(api: &Api, session: &str) {
    let request = v1::GetSessionDiffRequest { session_id: session.to_owned(), message_id: String::new() };
    let diff = api.sessions().get_session_diff(request).await.expect("a diff").into_inner();
    assert_eq!(diff.files.len(), 1, "{:?}", diff.files);
}

async fn take(api: &Api, session: &str) {
    let request = v1::ExportSessionRequest { session_id: session.to_owned(), ..Default::default() };
    let mut pieces = api.sessions().export_session(request).await.expect("an export").into_inner();
    let mut bytes = 0;
    while let Some(piece) = pieces.message().await.expect("a piece") {
        bytes += piece.data.len();
    }
    assert!(bytes > 0, "an export without a bundle");
}
