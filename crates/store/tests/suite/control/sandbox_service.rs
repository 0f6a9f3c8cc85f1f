//! The sandbox service that has the files of the sessions.

use crate::world::World;

#[tokio::test]
async fn the_first_sandbox_is_noted_until_an_operator_names_it_as_replaced() {
    let world = World::new().await;
    let note =
        async |found: &str, replaces: Option<&str>| world.store.note_sandbox(found, replaces).await.unwrap();
    assert_eq!(note("sbx_1", None).await, "sbx_1");
    for replaces in [None, Some("sbx_2"), Some("sbx_3")] {
        assert_eq!(note("sbx_2", replaces).await, "sbx_1", "{replaces:?}");
    }
    assert_eq!(note("sbx_2", Some("sbx_1")).await, "sbx_2");
    // A setting that stays has no further effect.
    assert_eq!(note("sbx_3", Some("sbx_1")).await, "sbx_2");
    let rows = world.number("select count(*) from sandbox_service").await;
    assert_eq!(rows, 1);
}
