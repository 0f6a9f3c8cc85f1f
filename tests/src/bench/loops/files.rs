//! The cost of snapshots of many files for a step that changes one file, compared with the same steps in a repository that
//! disables snapshots.

use super::sizes::Sizes;
use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        model::{Call, Model, Plan},
        samples::Samples,
        stored::past,
        testbed::{Servers, Testbed},
    },
};

/// Number of steps of each turn.
const STEPS: usize = 3;

pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let testbed = Testbed::start(servers, options).await;
    let mut kinds = vec![];
    for (name, settings) in [("with", "{}"), ("without", r#"{"snapshot": false}"#)] {
        let paths: Vec<String> =
            (0..sizes.files).map(|number| format!("src/d{}/f{number}", number % 100)).collect();
        let files = paths.iter().map(|path| (path.as_str(), path.as_str()));
        let files: Vec<_> = files.chain([("opencode.json", settings)]).collect();
        let session = testbed.stack.session_on(&testkit::git::repository(&files)).await;
        kinds.push((name, session, Samples::default()));
    }
    for round in 0..=sizes.rounds {
        for (_, session, samples) in &mut kinds {
            model.plan(Plan::Tools { steps: STEPS, call: Call::Write });
            past::turn(&testbed.stack.api, session, |prompt| prompt.text = format!("round {round}")).await;
            let log = model.take();
            // The first turn also unpacks the files.
            if round > 0 {
                samples.extend(log.answers.iter().zip(&log.requests[1..]).map(|(a, b)| *b - *a).collect());
            }
        }
    }
    testbed.end().await;
    let (with, without) = (&kinds[0].2, &kinds[1].2);
    let ratio = Figure::number(
        "a step with snapshots / without",
        Quantity { value: with.median_ratio(without), unit: "x" },
        with.count(),
        Target::None,
    );
    let times = kinds.into_iter().map(|(name, _, samples)| {
        let name = format!("step that writes one of {} files, {name} snapshots", sizes.files);
        Figure::times(name, samples, Target::None)
    });
    times.chain([ratio]).collect()
}
