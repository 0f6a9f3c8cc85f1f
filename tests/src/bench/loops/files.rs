//! What the states of many files cost a step that changes one of them: the same steps in a repository that wants no states.

use super::{Sizes, past, ratio};
use crate::{
    Options,
    bench::{
        Samples,
        figure::{Figure, Target},
        ground::{Ground, Servers},
        model::{Call, Model, Plan},
    },
};

/// Steps of each turn.
const STEPS: usize = 3;

/// Measures both by turns.
pub(super) async fn measure(servers: &Servers, sizes: &Sizes) -> Vec<Figure> {
    let model = Model::start().await;
    let options = Options { model_url: Some(model.url.clone()), ..Options::default() };
    let ground = Ground::start(servers, options).await;
    let mut kinds = vec![];
    for (name, settings) in [("with", "{}"), ("without", r#"{"snapshot": false}"#)] {
        let paths: Vec<String> =
            (0..sizes.files).map(|number| format!("src/d{}/f{number}", number % 100)).collect();
        let files = paths.iter().map(|path| (path.as_str(), path.as_str()));
        let files: Vec<_> = files.chain([("opencode.json", settings)]).collect();
        let session = ground.stack.session_on(&testkit::git::repository(&files)).await;
        kinds.push((name, session, Samples::default()));
    }
    for round in 0..=sizes.rounds {
        for (_, session, samples) in &mut kinds {
            model.plan(Plan::Tools { steps: STEPS, call: Call::Write });
            past::turn(&ground.stack.api, session, |prompt| prompt.text = format!("round {round}")).await;
            let seen = model.take();
            // The first turn also unpacks the files.
            if round > 0 {
                samples.extend(seen.answered.iter().zip(&seen.requests[1..]).map(|(a, b)| *b - *a).collect());
            }
        }
    }
    ground.end().await;
    let (with, without) = (&kinds[0].2, &kinds[1].2);
    let ratio = Figure::number(
        "a step with states of the files / without",
        (ratio(with, without), "x"),
        with.count(),
        Target::None,
    );
    let times = kinds.into_iter().map(|(name, _, samples)| {
        let name = format!("step that writes one of {} files, {name} states", sizes.files);
        Figure::times(name, samples, Target::None)
    });
    times.chain([ratio]).collect()
}
