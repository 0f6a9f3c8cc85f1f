//! The environments that repositories propose.

use crate::world::World;
use domain::ids::SessionId;
use store::people::environments::{
    EnvironmentChoice, NewDecision, NewProposal, PROPOSED_ENVIRONMENTS_MAX, ProposedEnvironment,
};

/// A project with a session that proposes.
struct Proposer {
    world: World,
    session: SessionId,
}

impl Proposer {
    async fn new() -> Self {
        let mut world = World::new().await;
        let session = world.session().await;
        Self { world, session }
    }

    async fn propose(&self, document: &str) -> EnvironmentChoice {
        let unused = ["features: it has no effect".to_owned()];
        let (project, session) = (&self.world.project, &self.session);
        let new = NewProposal { project, session, file: ".devcontainer.json", document, unused: &unused };
        self.world.store.propose_environment(self.world.tenant, new).await.unwrap()
    }

    async fn decide(&self, digest: &str, is_allowed: bool) -> ProposedEnvironment {
        let decision = NewDecision { project: &self.world.project, digest, is_allowed, by: "ann" };
        self.world.store.decide_environment(self.world.tenant, decision).await.unwrap()
    }

    async fn find(&self, document: &str) -> EnvironmentChoice {
        let World { store, tenant, project, .. } = &self.world;
        store.find_environment(*tenant, project, document).await.unwrap()
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
    assert_eq!((first.own, first.allowed), (None, None), "it is new");
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
async fn proposals_are_bounded_and_crowd_out_no_decision() {
    let proposer = Proposer::new().await;
    let allowed = proposer.propose("allowed").await.digest;
    proposer.decide(&allowed, true).await;
    for at in 0..=PROPOSED_ENVIRONMENTS_MAX {
        proposer.propose(&format!("{at}")).await;
    }
    let list = proposer.list().await;
    assert_eq!(i64::try_from(list.len()).unwrap(), PROPOSED_ENVIRONMENTS_MAX + 1);
    let has = |document: &str| list.iter().any(|known| known.document == document);
    assert!(has("allowed") && has("1") && !has("0"), "the oldest that waited made room");
}
