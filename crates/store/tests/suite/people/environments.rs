//! The environments that repositories propose.

use crate::world::World;
use domain::{ids::SessionId, session::Source};
use store::{
    error::Error,
    people::environments::{
        EnvironmentChoice, EnvironmentQuery, NewDecision, NewProposal, PROPOSED_ENVIRONMENTS_MAX,
        ProposedEnvironment,
    },
    session::creation::NewSession,
};
use testkit::sample::NOW;

/// A project with a session that proposes.
struct Proposer {
    world: World,
    session: SessionId,
    /// What is known of its repository.
    repository: Option<&'static str>,
}

impl Proposer {
    async fn new() -> Self {
        let mut world = World::new().await;
        let session = world.session().await;
        Self { world, session, repository: None }
    }

    async fn propose(&self, document: &str) -> EnvironmentChoice {
        let unused = ["features: it has no effect".to_owned()];
        let (project, session) = (&self.world.project, &self.session);
        let (file, repository) = (".devcontainer.json", self.repository);
        let new = NewProposal { project, session, file, document, unused: &unused, repository };
        self.world.store.propose_environment(self.world.tenant, new).await.unwrap()
    }

    async fn decide(&self, digest: &str, is_allowed: bool) -> ProposedEnvironment {
        let decision = NewDecision { project: &self.world.project, digest, is_allowed, by: "ann" };
        self.world.store.decide_environment(self.world.tenant, decision).await.unwrap()
    }

    async fn find(&self, document: &str) -> EnvironmentChoice {
        let World { store, tenant, project, .. } = &self.world;
        let (session, repository) = (&self.session, self.repository);
        let query = EnvironmentQuery { project, session, document, repository };
        store.find_environment(*tenant, query).await.unwrap()
    }

    async fn list(&self) -> Vec<ProposedEnvironment> {
        let World { store, tenant, project, .. } = &self.world;
        store.list_proposed_environments(*tenant, project).await.unwrap()
    }
}

#[tokio::test]
async fn sessions_use_the_environment_that_was_allowed_last_until_their_own_is_allowed() {
    let proposer = Proposer::new().await;
    let first = proposer.propose("{\"a\":1}").await;
    assert_eq!((first.own.unwrap().decision, first.allowed), (None, None), "it waits");
    let again = proposer.propose("{\"a\":1}").await;
    let own = again.own.unwrap();
    assert_eq!((&own.digest, &own.decision, again.allowed), (&first.digest, &None, None));
    assert_eq!(
        (own.file.as_str(), own.unused.len(), own.session),
        (".devcontainer.json", 1, proposer.session.clone())
    );
    assert_eq!(proposer.list().await.len(), 1, "a second session proposes nothing new");

    let allowed = proposer.decide(&first.digest, true).await;
    let decision = allowed.decision.clone().unwrap();
    assert_eq!((decision.is_allowed, decision.by.as_str()), (true, "ann"));
    assert_eq!(proposer.find("{\"a\":1}").await.allowed, Some(allowed.clone()));
    let other = proposer.find("{\"b\":1}").await;
    assert_eq!((other.own, other.allowed), (None, Some(allowed.clone())), "another branch works with it");

    let second = proposer.propose("{\"b\":1}").await.digest;
    proposer.decide(&second, true).await;
    assert_eq!(proposer.find("{\"a\":1}").await.allowed, Some(allowed.clone()), "each uses its own");
    assert_eq!(proposer.find("{\"c\":1}").await.allowed.unwrap().digest, second);
    proposer.decide(&second, false).await;
    let denied = proposer.find("{\"b\":1}").await;
    assert_eq!((denied.own.unwrap().decision.unwrap().is_allowed, denied.allowed), (false, Some(allowed)));
}

#[tokio::test]
async fn a_decision_counts_for_the_repository_in_all_projects_that_have_none_of_their_own() {
    let mut proposer = Proposer::new().await;
    let first = proposer.world.project.clone();
    let second = proposer.world.sample.project();
    let World { store, tenant, .. } = &proposer.world;
    store.create_project(*tenant, &second, "second", &Source::default()).await.unwrap();
    let (document, is_allowed) =
        ("{\"a\":1}", |it: &ProposedEnvironment| it.decision.as_ref().map(|it| it.is_allowed));
    proposer.repository = Some("h/r");
    let digest = proposer.propose(document).await.digest;
    proposer.decide(&digest, true).await;

    proposer.world.project = second.clone();
    assert_eq!(proposer.find(document).await.allowed.unwrap().digest, digest, "before a session proposed it");
    let proposed = proposer.propose(document).await;
    assert_eq!((proposed.own.unwrap().decision, proposed.allowed.unwrap().digest), (None, digest.clone()));
    assert_eq!(proposer.list().await.iter().map(is_allowed).collect::<Vec<_>>(), [Some(true)]);
    for other in [None, Some("h/other")] {
        proposer.repository = other;
        assert_eq!(proposer.find(document).await.allowed, None, "{other:?}");
    }
    proposer.repository = Some("h/r");
    // What an admin takes back is taken back everywhere.
    proposer.world.project = first.clone();
    proposer.decide(&digest, false).await;
    proposer.world.project = second;
    assert_eq!(proposer.find(document).await.allowed, None);
    assert_eq!(proposer.list().await.iter().map(is_allowed).collect::<Vec<_>>(), [Some(false)]);
    proposer.decide(&digest, true).await;
    assert_eq!(proposer.find(document).await.allowed.unwrap().digest, digest, "its own decision wins");
    proposer.world.project = first;
    assert_eq!(proposer.find(document).await.allowed, None, "so it does there");
}

#[tokio::test]
async fn an_environment_is_decided_before_a_session_of_the_project_proposed_it() {
    let mut proposer = Proposer::new().await;
    let digest = proposer.propose("{\"a\":1}").await.digest;
    let second = proposer.world.sample.project();
    let World { store, tenant, .. } = &proposer.world;
    store.create_project(*tenant, &second, "second", &Source::default()).await.unwrap();
    let found = store.find_proposed_environments(*tenant, &digest[..8]).await.unwrap();
    assert_eq!(found.iter().map(|it| (&it.digest, &it.decision)).collect::<Vec<_>>(), [(&digest, &None)]);
    assert_eq!(store.find_proposed_environments(*tenant, "g").await.unwrap(), []);
    let unknown = NewDecision { project: &second, digest: "0", is_allowed: true, by: "ann" };
    assert!(matches!(store.decide_environment(*tenant, unknown).await, Err(Error::NotFound(_))));
    let decision = NewDecision { project: &second, digest: &digest, is_allowed: true, by: "ann" };
    store.decide_environment(*tenant, decision).await.unwrap();
    assert_eq!(proposer.find("{\"a\":1}").await.allowed, None, "the other project decides for itself");
    proposer.world.project = second;
    assert_eq!(proposer.find("{\"a\":1}").await.allowed.unwrap().digest, digest);
}

#[tokio::test]
async fn a_trial_uses_what_its_repository_proposes_and_no_other_session_does() {
    let mut proposer = Proposer::new().await;
    let other = proposer.session.clone();
    let old = proposer.propose("{\"old\":1}").await.digest;
    proposer.decide(&old, true).await;
    let new = NewSession { tries_environment: true, ..proposer.world.new_session() };
    let event = proposer.world.sample.event();
    let World { store, tenant, .. } = &proposer.world;
    let (trial, _) = store.create_session(*tenant, &new, &event, NOW).await.unwrap();
    proposer.session = trial.info.id;
    for is_known in [false, true] {
        let tried = proposer.propose("{\"new\":1}").await;
        assert_eq!(tried.allowed.unwrap().digest, tried.digest, "known: {is_known}");
    }
    assert_eq!(proposer.find("{\"unknown\":1}").await.allowed, None, "never the one that was allowed last");
    let digest = proposer.find("{\"new\":1}").await.digest;
    proposer.decide(&digest, false).await;
    assert_eq!(proposer.find("{\"new\":1}").await.allowed.unwrap().digest, digest);
    proposer.session = other;
    assert_eq!(proposer.find("{\"new\":1}").await.allowed.unwrap().digest, old);
}

#[tokio::test]
async fn proposals_are_bounded_and_crowd_out_no_decision() {
    let proposer = Proposer::new().await;
    let allowed = proposer.propose("allowed").await.digest;
    proposer.decide(&allowed, true).await;
    let denied = proposer.propose("denied").await.digest;
    proposer.decide(&denied, false).await;
    for at in 0..=PROPOSED_ENVIRONMENTS_MAX {
        proposer.propose(&format!("{at}")).await;
    }
    let list = proposer.list().await;
    assert_eq!(i64::try_from(list.len()).unwrap(), PROPOSED_ENVIRONMENTS_MAX + 2);
    let has = |document: &str| list.iter().any(|known| known.document == document);
    assert!(has("allowed") && has("1") && !has("0"), "the oldest that waited made room");
    let again = proposer.propose("denied").await.own.unwrap();
    assert_eq!(again.decision.map(|decision| decision.is_allowed), Some(false), "nobody is asked again");
    // Decisions of one kind push out none of the other.
    for at in 2..=PROPOSED_ENVIRONMENTS_MAX {
        proposer.decide(&proposer.propose(&format!("{at}")).await.digest, false).await;
    }
    let list = proposer.list().await;
    let count = |is_allowed: bool| {
        list.iter()
            .filter(|known| known.decision.as_ref().is_some_and(|it| it.is_allowed == is_allowed))
            .count()
    };
    assert_eq!((count(true), i64::try_from(count(false)).unwrap()), (1, PROPOSED_ENVIRONMENTS_MAX));
}
