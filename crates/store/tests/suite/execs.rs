//! Effects: begun once, whoever asks.

use crate::world::World;
use store::{error::Error, execs::Begun};

#[tokio::test]
async fn an_effect_is_begun_once_and_a_successor_is_told() {
    let mut world = World::new().await;
    let running = world.running().await;
    let (store, tenant, session) = (&world.store, world.tenant, &running.session);
    let begin = |epoch| store.begin_exec(tenant, session, epoch, ("call-1", "bash"));
    assert_eq!(begin(1).await.unwrap(), Begun { epoch: 1, fresh: true });
    assert_eq!(begin(1).await.unwrap(), Begun { epoch: 1, fresh: false });

    store.forget_worker(running.worker).await.unwrap();
    let successor = world.worker().await;
    world.take(session, successor).await.unwrap();
    assert_eq!(begin(2).await.unwrap(), Begun { epoch: 1, fresh: false });
    for exec in [("call-1", "bash"), ("call-2", "bash")] {
        let stale = store.begin_exec(tenant, session, 1, exec).await;
        assert!(matches!(stale, Err(Error::Fenced)), "{stale:?}");
    }

    for _ in 0..2 {
        store.end_exec(tenant, session, "call-1").await.unwrap();
    }
    let done = "select count(*) from tool_exec where state = 'done' and ended_at is not null";
    assert_eq!((world.number(done).await, world.number("select count(*) from tool_exec").await), (1, 1));
    assert_eq!(begin(2).await.unwrap(), Begun { epoch: 1, fresh: false }, "also when it is over");
}

#[tokio::test]
async fn of_eight_that_begin_one_effect_at_once_one_is_first() {
    let mut world = World::new().await;
    let running = world.running().await;
    let begun = (0..8).map(|_| world.store.begin_exec(world.tenant, &running.session, 1, ("call-1", "bash")));
    let begun = futures::future::try_join_all(begun).await.unwrap();
    assert_eq!(begun.iter().filter(|begun| begun.fresh).count(), 1);
}
