//! The image of a workspace, and the layers of a tenant.

use crate::world::World;
use domain::session::image::{Image, ImageLayer};
use store::error::Error;

fn image(tag: &str) -> Image {
    let layer = ImageLayer {
        blob_digest: format!("sha256:{tag}"),
        media_type: "application/vnd.oci.image.layer.v1.tar+gzip".to_owned(),
        diff_id: format!("sha256:d{tag}"),
    };
    Image {
        reference: format!("r.example.com/dev@sha256:{tag}"),
        credential: None,
        layers: vec![layer],
        env: vec!["A=b".to_owned()],
    }
}

#[tokio::test]
async fn the_first_image_of_a_workspace_stays() {
    let mut world = World::new().await;
    let (tenant, session) = (world.tenant, world.session().await);
    assert_eq!(world.store.find_image(tenant, &session).await.unwrap(), None);
    assert_eq!(world.store.record_image(tenant, &session, &image("1")).await.unwrap(), image("1"));
    assert_eq!(world.store.record_image(tenant, &session, &image("2")).await.unwrap(), image("1"));
    assert_eq!(world.store.find_image(tenant, &session).await.unwrap(), Some(image("1")));
    let stranger = world.sample.tenant();
    assert_eq!(world.store.find_image(stranger, &session).await.unwrap(), None);
    let refused = world.store.record_image(stranger, &session, &image("3")).await;
    assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
}

#[tokio::test]
async fn a_layer_is_shown_by_each_tenant_for_itself() {
    let mut world = World::new().await;
    let (one, other) = (world.tenant, world.sample.tenant());
    world.store.create_tenant(other, "second").await.unwrap();
    for _ in 0..2 {
        world.store.note_shown_layer(one, "sha256:a").await.unwrap();
    }
    let both = ["sha256:a".to_owned(), "sha256:b".to_owned()];
    assert_eq!(world.store.list_shown_layers(one, &both).await.unwrap(), both[..1]);
    assert_eq!(world.store.list_shown_layers(other, &both).await.unwrap(), Vec::<String>::new());
}
