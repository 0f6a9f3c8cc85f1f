//! The attacks, and how often each of them got through.

use super::{connections, http::Http, round::Round, sandbox, sizes::Sizes};
use crate::api::Api;
use futures::{FutureExt as _, future::BoxFuture};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Pause after a round that was refused: a client that repeats at once would mostly measure itself.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

type Act = dyn Fn(Api, Http, Sizes) -> BoxFuture<'static, Round> + Send + Sync;

/// A way to starve others, which is repeated until the measurement ends.
pub(super) struct Attack {
    name: &'static str,
    act: Box<Act>,
    parallel: usize,
    sizes: Sizes,
    tally: Mutex<Tally>,
}

/// What became of the rounds of an attack.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// The name of the attack.
    pub(super) attack: String,
    pub(super) done: u64,
    refused: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn rounds(&self) -> u64 {
        self.done + self.refused.values().sum::<u64>()
    }

    /// The refusals by code: `refused 3 requests_too_many, 1 session_full`.
    pub(super) fn refusals(&self) -> String {
        let codes: Vec<_> = self.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        if codes.is_empty() { "refused none".to_owned() } else { format!("refused {}", codes.join(", ")) }
    }
}

impl Attack {
    fn new<F>(
        name: &'static str,
        parallel: usize,
        sizes: &Sizes,
        act: impl Fn(Api, Http, Sizes) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Round> + Send + 'static,
    {
        let act = Box::new(move |api, http, sizes| act(api, http, sizes).boxed());
        let tally = Mutex::new(Tally { attack: name.to_owned(), ..Tally::default() });
        Arc::new(Self { name, act, parallel, sizes: sizes.clone(), tally })
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, round: Round) -> bool {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        match round {
            Ok(()) => {
                tally.done += 1;
                true
            }
            Err(code) => {
                *tally.refused.entry(code).or_default() += 1;
                false
            }
        }
    }
}

pub(super) fn all(sizes: &Sizes) -> Vec<Arc<Attack>> {
    let (some, parallel) = (
        |name, act: fn(Api, Http, Sizes) -> BoxFuture<'static, Round>| Attack::new(name, 1, sizes, act),
        sizes.parallel,
    );
    let all = vec![
        some("notes", |api, http, sizes| connections::notes(api, http, sizes).boxed()),
        Attack::new("large lists", parallel, sizes, |api, http, _| connections::lists(api, http)),
        some("large forks", |api, _, _| connections::forks(api).boxed()),
        some("silent subscribers", |_, http, _| connections::silent_subscribers(http).boxed()),
        some("idle connections", |_, http, sizes| connections::idle(http, sizes).boxed()),
        Attack::new("wrong keys", parallel, sizes, |_, http, _| connections::wrong_keys(http)),
        some("backlog", |api, _, sizes| connections::backlog(api, sizes).boxed()),
        Attack::new("uploads", 2, sizes, |api, _, sizes| connections::uploads(api, sizes)),
        Attack::new("abandoned diffs", parallel, sizes, |api, _, sizes| sandbox::diffs(api, sizes)),
        Attack::new("searches", parallel, sizes, |_, http, _| sandbox::searches(http)),
        Attack::new("busy processors", 4, sizes, |api, _, _| sandbox::command(api, sandbox::BUSY)),
        some("fork bomb", |api, _, _| sandbox::command(api, sandbox::FORK_BOMB).boxed()),
        some("full disk", |api, _, _| sandbox::command(api, sandbox::FULL_DISK).boxed()),
        some("full memory", |api, _, _| sandbox::command(api, sandbox::FULL_MEMORY).boxed()),
        some("endless output", |api, _, _| sandbox::command(api, sandbox::ENDLESS_OUTPUT).boxed()),
        some("huge edits", |api, _, _| sandbox::edits(api).boxed()),
        some("deep commands", |api, _, _| sandbox::deep_commands(api).boxed()),
        some("terminals", |api, _, _| sandbox::terminals(api).boxed()),
        some("clones", |api, _, _| sandbox::clones(api).boxed()),
    ];
    all.into_iter().filter(|attack| !sizes.without.iter().any(|name| name == attack.name)).collect()
}

/// Repeats an attack until `stop`.
pub(super) async fn repeat(attack: Arc<Attack>, api: Api, http: Http, stop: CancellationToken) {
    let one = || async {
        loop {
            let round = (attack.act)(api.clone(), http.clone(), attack.sizes.clone());
            // A helper of tests that waits in vain panics: the stack made the attacker wait.
            let round = AssertUnwindSafe(round).catch_unwind().await;
            if !attack.note(round.unwrap_or_else(|_| Err("waited in vain".to_owned()))) {
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    };
    let all = futures::future::join_all((0..attack.parallel).map(|_| one()));
    stop.run_until_cancelled(all).await;
}

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attack").field("name", &self.name).finish_non_exhaustive()
    }
}
