//! Aborts of sessions and of their subtasks.

use crate::{family::waiting, world::World};
use domain::{ids::SessionId, session::Class, wait::Reason};
use store::{error::Error, log::record::Fence, session::mailbox::Kind};

/// Number of aborts in a mailbox.
async fn aborts(world: &World, session: &SessionId) -> usize {
    let inputs = world.store.list_inputs(world.tenant, session, 0).await.unwrap();
    inputs.iter().filter(|input| input.kind == Kind::Abort).count()
}

#[tokio::test]
async fn an_abort_is_passed_on_once_to_each_descendant() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (_, mut child) = world.child(&mut root).await;
    let (_, leaf) = world.child(&mut child).await;
    world.park_as(&mut child, 1, &waiting(Reason::Children, None)).await;
    world.sql(&format!("update session_run set class = 2 where session_id = '{}'", leaf.session())).await;
    let accept = async || world.store.accept_abort(world.tenant, root.session(), "a1").await.unwrap();
    assert_eq!(accept().await, accept().await, "the same one");
    // The gateway and the loops of the root and of the child, in any order.
    let (interactive, batch) = ((child.session(), Class::Interactive), (leaf.session(), Class::Batch));
    for (from, reached) in
        [(&root, vec![interactive, batch]), (&child, vec![batch]), (&root, vec![interactive, batch])]
    {
        let below = world.store.abort_below(world.tenant, from.session(), "a1").await.unwrap();
        let below: Vec<_> = below.iter().map(|below| (&below.session, below.class)).collect();
        assert_eq!(below, reached);
    }
    for session in [root.session(), child.session(), leaf.session()] {
        assert_eq!(aborts(&world, session).await, 1, "{session}");
    }
    world.accept(leaf.session(), "one more").await;
    world.store.abort_below(world.tenant, root.session(), "a2").await.unwrap();
    assert_eq!(aborts(&world, leaf.session()).await, 2, "another abort covers the later inputs");
}

#[tokio::test]
async fn a_loop_that_was_replaced_aborts_no_subtask() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (_, child) = world.child(&mut root).await;
    let late = root.fence.clone();
    world
        .sql(&format!("update session_run set epoch = epoch + 1 where session_id = '{}'", root.session()))
        .await;
    let refused = world.store.abort_below_fenced(&late, "a1").await;
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    assert_eq!(aborts(&world, child.session()).await, 0);
    let successor = Fence { epoch: late.epoch + 1, ..late };
    let below = world.store.abort_below_fenced(&successor, "a1").await.unwrap();
    assert_eq!(below.iter().map(|below| &below.session).collect::<Vec<_>>(), [child.session()]);
}

#[tokio::test]
async fn untaken_aborts_are_merged_until_another_input_follows() {
    let mut world = World::new().await;
    let session = world.session().await;
    world.accept(&session, "begin").await;
    for key in 0..20 {
        let accepted = world.store.accept_abort(world.tenant, &session, &format!("a{key}")).await.unwrap();
        assert!(accepted.is_some(), "every caller learns that the turn ends");
    }
    assert_eq!(aborts(&world, &session).await, 1);
    world.accept(&session, "more").await;
    for key in 20..40 {
        world.store.accept_abort(world.tenant, &session, &format!("a{key}")).await.unwrap();
    }
    assert_eq!(aborts(&world, &session).await, 2, "the abort also covers the second prompt");

    // A loop takes them all and continues. A new abort stops it again.
    let worker = world.worker().await;
    world.take(&session, worker).await.unwrap();
    world.sql("update session_run set input_ack = input_seq").await;
    assert!(world.store.accept_abort(world.tenant, &session, "b1").await.unwrap().is_some());
    assert_eq!(aborts(&world, &session).await, 3);
}

#[tokio::test]
async fn a_quarantined_session_refuses_inputs_and_hides_no_descendant() {
    let mut world = World::new().await;
    let mut root = world.actor().await;
    let (_, child) = world.child(&mut root).await;
    let repeated = world.prompt(root.session(), "before");
    world.store.accept_prompt(world.tenant, &repeated, testkit::sample::NOW).await.unwrap();
    world.sql(&format!("update session_run set phase = 4 where session_id = '{}'", root.session())).await;
    let prompt = world.prompt(root.session(), "after");
    let refused = world.store.accept_prompt(world.tenant, &prompt, testkit::sample::NOW).await;
    assert!(matches!(refused, Err(Error::Quarantined)), "{refused:?}");
    let again = world.store.accept_prompt(world.tenant, &repeated, testkit::sample::NOW).await;
    assert_eq!(again.unwrap().message_id, repeated.id, "what was accepted stays accepted");
    let refused = world.store.accept_abort(world.tenant, root.session(), "a1").await;
    assert!(matches!(refused, Err(Error::Quarantined)), "{refused:?}");
    let below = world.store.abort_below(world.tenant, root.session(), "a1").await.unwrap();
    assert_eq!(below.iter().map(|below| &below.session).collect::<Vec<_>>(), [child.session()]);

    world.sql(&format!("update session_run set phase = 4 where session_id = '{}'", child.session())).await;
    assert_eq!(world.store.abort_below(world.tenant, root.session(), "a2").await.unwrap(), []);
}
