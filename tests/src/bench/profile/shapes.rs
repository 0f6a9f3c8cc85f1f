//! The sessions that a profile counts.

use crate::{
    api::Api,
    bench::model::{Call, Model, Plan},
    turn::Watch,
};
use rpc::v1;
use std::time::Duration;

/// Chunks of the text of a short session.
const CHUNKS: usize = 20;
/// Steps of a session with calls.
const STEPS: usize = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One prompt and a text.
    Short,
    /// The same on a repository whose commit was read before.
    ShortWithFiles,
    /// Steps that run `true`.
    Bash,
    /// Steps that read a file.
    Read,
    /// Steps that need no sandbox.
    Todos,
}

impl Shape {
    pub(super) const ALL: [Self; 5] =
        [Self::Short, Self::ShortWithFiles, Self::Bash, Self::Read, Self::Todos];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Short => "short session",
            Self::ShortWithFiles => "short session with files",
            Self::Bash => "step, bash true",
            Self::Read => "step, read",
            Self::Todos => "step, todowrite",
        }
    }

    /// Steps of one session; 1 if the session itself is counted.
    pub(super) const fn steps(self) -> usize {
        match self {
            Self::Short | Self::ShortWithFiles => 1,
            Self::Bash | Self::Read | Self::Todos => STEPS,
        }
    }

    /// Runs one session of this shape with so many steps. `source` has files.
    pub(super) async fn run(self, api: &Api, model: &Model, steps: usize, source: &v1::Source) {
        model.plan(match self {
            Self::Short | Self::ShortWithFiles => {
                Plan::Text { chunks: CHUNKS, apart: Duration::from_millis(1) }
            }
            Self::Bash => Plan::Tools { steps, call: Call::True },
            Self::Read => Plan::Tools { steps, call: Call::Read },
            Self::Todos => Plan::Tools { steps, call: Call::Todos },
        });
        let source = (self == Self::ShortWithFiles).then(|| source.clone());
        let session = api.session(source).await;
        let mut watch = Watch::start(api, &session).await;
        api.prompt(&session, "count this").await.expect("an accepted prompt");
        assert_eq!(watch.until_idle().await, "done");
    }
}
