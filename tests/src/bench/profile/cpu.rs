//! The CPU time and the memory of each process for short sessions, many at once.

use super::{shapes::Shape, sizes::Sizes};
use crate::{
    api::Api,
    bench::{
        figure::{Figure, Quantity, Target},
        machine::usage::{CpuTime, MeasuredProcess, Meter},
        model::Model,
        sources,
    },
};
use futures::{StreamExt as _, stream};
use rpc::v1;
use std::time::Instant;

/// Runs short sessions, and measures the processes of their stack meanwhile.
pub async fn measure(api: &Api, model: &Model, processes: &[MeasuredProcess], sizes: &Sizes) -> Vec<Figure> {
    let source = sources::upload(api, &sources::repository_of(sizes.files)).await;
    let run = async || run(api, model, &source, sizes).await;
    // Connections are opened and statements prepared before anything counts: on each of some 40 connections Postgres plans each statement once.
    run().await;
    let (meter, begun) = (Meter::start(processes), Instant::now());
    run().await;
    let (took, usages) = (begun.elapsed(), meter.stop());
    let total: f64 =
        usages.iter().map(|usage| usage.cpu).map(CpuTime::total).map(|time| time.as_secs_f64()).sum();
    let number =
        |name: String, value, unit| Figure::number(name, Quantity { value, unit }, sizes.crowd, Target::None);
    let all = [
        number(
            format!("short sessions, half of them with files, {} at once", sizes.at_once),
            sizes.crowd as f64 / took.as_secs_f64(),
            "/s",
        ),
        number("CPU of all processes, each session".to_owned(), total * 1_000.0 / sizes.crowd as f64, "ms"),
    ];
    let each = usages.iter().flat_map(|usage| usage.figures(Target::None));
    all.into_iter().chain(each).collect()
}

/// Runs short sessions. Every second one has files.
async fn run(api: &Api, model: &Model, source: &v1::Source, sizes: &Sizes) {
    let short = |number: usize| {
        let shape = if number.is_multiple_of(2) { Shape::Short } else { Shape::ShortWithFiles };
        shape.run(api, model, shape.steps(), source)
    };
    stream::iter(0..sizes.crowd).for_each_concurrent(sizes.at_once, short).await;
}
