//! The budget of a tree of sessions.

use crate::{family::waiting, world::World};
use domain::{
    event::Event,
    money::{Tokens, UsdPicos},
    session::Phase,
    wait::{Reason, Wait},
};
use store::{
    error::Error,
    log::record::Progress,
    session::{
        park::{Park, ParkOutcome},
        tree::budget::Budget,
    },
};
use testkit::sample::NOW;

#[tokio::test]
async fn a_tree_spends_one_budget() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    let stranger = world.actor().await;
    let (tenant, root) = (world.tenant, parent.session().clone());
    for (actor, picos) in [(&mut parent, 3), (&mut child, 4)] {
        let (fence, change) = (actor.next(), world.spend(Tokens::default(), picos));
        world.store.append(&fence, &[change], 0, Progress::None, NOW).await.unwrap();
    }
    let unlimited = Budget { spent: UsdPicos(7), max: None };
    assert_eq!(world.store.get_budget(tenant, &root).await.unwrap(), unlimited);
    for (session, picos) in [(&root, 3), (child.session(), 4), (stranger.session(), 0)] {
        assert_eq!(world.store.get_session_spent(tenant, session).await.unwrap(), UsdPicos(picos));
    }
    for (max, used_up) in [(8, false), (7, true), (1, true)] {
        world.store.set_budget(tenant, &root, Some(UsdPicos(max)), &format!("set:{max}")).await.unwrap();
        let budget = world.store.get_budget(tenant, &root).await.unwrap();
        assert_eq!((budget.max, budget.is_used_up()), (Some(UsdPicos(max)), used_up));
    }
    let session = world.store.get_session(tenant, child.session()).await.unwrap();
    assert_eq!(session.budget, Some(UsdPicos(1)), "a child has the budget of its root");
    let other = world.store.get_session(tenant, stranger.session()).await.unwrap();
    assert_eq!(other.budget, None);
    let of_child = world.store.set_budget(tenant, child.session(), None, "set:child").await;
    assert!(matches!(of_child, Err(Error::NotFound(_))), "{of_child:?}");
    let other_tenant = world.sample.tenant();
    world.store.create_tenant(other_tenant, "second").await.unwrap();
    let foreign = world.store.set_budget(other_tenant, &root, None, "set:foreign").await;
    assert!(matches!(foreign, Err(Error::NotFound(_))), "{foreign:?}");
    assert!(matches!(world.store.get_budget(other_tenant, &root).await, Err(Error::NotFound(_))));
}

/// In either order, the loop sees the raise before it parks, or the raise wakes it.
#[tokio::test]
async fn a_raise_during_parking_is_never_lost() {
    let mut world = World::new().await;
    for round in 0..20 {
        let mut actor = world.actor().await;
        let (fence, session) = (actor.next(), actor.session().clone());
        let (park, dedupe) = (waiting(Reason::Budget, None), format!("set:{round}"));
        let (parked, sessions) = tokio::join!(
            world.store.park(&fence, &[], 1, &park, NOW),
            world.store.set_budget(world.tenant, &session, Some(UsdPicos(9)), &dedupe)
        );
        assert_eq!(sessions.unwrap(), std::slice::from_ref(&session));
        let state = world.store.get_session(world.tenant, &session).await.unwrap();
        let want = match parked.unwrap() {
            ParkOutcome::Parked(_) => Phase::Runnable,
            ParkOutcome::NewInput => Phase::Running,
        };
        assert_eq!((state.phase, state.waiting_reason), (want, None), "round {round}");
        assert_eq!(world.inputs(&session).await, ["budget"]);
    }
}

#[tokio::test]
async fn a_parent_learns_once_that_its_child_has_no_budget_left() {
    let mut world = World::new().await;
    let mut parent = world.actor().await;
    let (_, mut child) = world.child(&mut parent).await;
    world.park_as(&mut parent, 1, &waiting(Reason::Children, None)).await;
    let wait = Wait { reason: Reason::Budget, until: None };
    let changes = [world.change(Event::SessionWaiting(wait))];
    let park = Park::Waiting { wait, notify: Some(parent.session().clone()) };
    let fence = child.next();
    for _ in 0..2 {
        let parked = world.store.park(&fence, &changes, 1, &park, NOW).await.unwrap();
        assert!(matches!(parked, ParkOutcome::Parked(_)), "{parked:?}");
    }
    let state = world.store.get_session(world.tenant, parent.session()).await.unwrap();
    assert_eq!(state.phase, Phase::Runnable);
    assert_eq!(world.inputs(parent.session()).await, ["budget"]);
    let sessions = world.store.set_budget(world.tenant, parent.session(), None, "set:1").await.unwrap();
    assert_eq!(sessions, [child.session().clone()], "a runnable session checks the budget anyway");
}
