//! The doorbell: every listening worker hears it.

use crate::world::World;
use testkit::within;

#[tokio::test]
async fn a_ring_reaches_every_listener() {
    let world = World::new().await;
    let (mut first, mut second) = (world.bus.listen().await.unwrap(), world.bus.listen().await.unwrap());
    for _ in 0..2 {
        world.bus.ring();
        within("the first hears it", first.wait()).await;
        within("the second hears it", second.wait()).await;
    }
}

#[tokio::test]
async fn without_a_ring_the_doorbell_is_silent() {
    let (mut world, other) = (World::new().await, World::new().await);
    let mut doorbell = world.bus.listen().await.unwrap();
    let (mut loud, session) = (other.bus.listen().await.unwrap(), world.sample.session());
    assert!(
        world.bus.read(world.sample.tenant(), &session).await.unwrap().is_joined(),
        "the server knows the listeners"
    );
    other.bus.ring();
    within("the other stack's bell rings", loud.wait()).await;
    // The server delivers pending messages before it answers a later request.
    assert!(world.bus.read(world.sample.tenant(), &session).await.unwrap().is_joined());
    assert!(futures::FutureExt::now_or_never(doorbell.wait()).is_none());
}
