//! Answers "always" beyond one session.

use crate::world::World;
use domain::{
    conversation::request::{Answer, Id, Request, RequestBody},
    ids::{EventId, PermissionId, TenantId},
    policy::permission::{Rule, Scope},
};
use store::{
    Page,
    people::requests::{AnswerOutcome, NewAnswer},
};
use testkit::sample::NOW;

/// Asks in a new session, and answers "always" as a person.
async fn answered(world: &mut World, scope: Scope) -> Request {
    let mut actor = world.actor().await;
    let request = world.ask(&mut actor).await;
    let event: EventId = world.sample.event();
    let answer = NewAnswer { answer: &Answer::Always { scope }, by: "ann", epoch: None };
    let answered = world.store.answer_request(world.tenant, &request.id, answer, &event, NOW).await.unwrap();
    assert!(matches!(answered, AnswerOutcome::Accepted { .. }));
    request
}

fn permission_id(request: &Request) -> PermissionId {
    let Id::Permission(id) = &request.id else { panic!("a permission") };
    id.clone()
}

fn always(request: &Request) -> Vec<Rule> {
    let RequestBody::Permission { permission, always, .. } = &request.body else { panic!("a permission") };
    always.iter().map(|pattern| Rule::approval(permission, pattern)).collect()
}

#[tokio::test]
async fn an_approval_applies_in_its_scope_until_it_is_revoked() {
    let mut world = World::new().await;
    let inside = world.session().await;
    let (own, stranger) = (world.project.clone(), TenantId(uuid::Uuid::now_v7()));
    let elsewhere = world.sample.project();
    let source = domain::session::Source::default();
    world.store.create_project(world.tenant, &elsewhere, "elsewhere", &source).await.unwrap();
    world.project = elsewhere;
    let outside = world.session().await;
    world.project = own.clone();
    let counts =
        async |world: &World, session| world.store.list_approvals_of(world.tenant, session).await.unwrap();
    answered(&mut world, Scope::Session).await;
    assert_eq!(counts(&world, &inside).await, []);

    let project = answered(&mut world, Scope::Project).await;
    assert!(!always(&project).is_empty());
    assert_eq!(counts(&world, &inside).await, always(&project));
    assert_eq!(counts(&world, &outside).await, [], "another project");

    let tenant = answered(&mut world, Scope::Tenant).await;
    assert_eq!(counts(&world, &outside).await, always(&tenant));
    answered(&mut world, Scope::Tenant).await;
    let list = world.store.list_approvals(world.tenant, &Page::default()).await.unwrap();
    let list: Vec<_> =
        list.iter().map(|entry| (&entry.request, entry.project.as_ref(), &*entry.by)).collect();
    let (first, second) = (permission_id(&project), permission_id(&tenant));
    assert_eq!(
        list,
        [(&first, Some(&own), "ann"), (&second, None, "ann")],
        "a repeated approval changes nothing"
    );
    assert_eq!(world.store.list_approvals_of(stranger, &inside).await.unwrap(), []);

    assert!(!world.store.delete_approval(stranger, &second).await.unwrap());
    assert!(world.store.delete_approval(world.tenant, &second).await.unwrap());
    assert!(!world.store.delete_approval(world.tenant, &second).await.unwrap(), "once");
    assert_eq!(counts(&world, &outside).await, []);
    assert_eq!(counts(&world, &inside).await, always(&project));
}
