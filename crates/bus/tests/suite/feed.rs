//! Live events: in order, only for the session that is read, and without blocking the sender.

use crate::world::World;
use bus::feed::{Delta, Event, News, Notice, Subject};
use domain::ids::{EventId, MessageId, PartId};
use serde_json::value::RawValue;
use testkit::{sample::NOW, within};

fn beat(seq: u64) -> News {
    News::Beat { epoch: 1, seq }
}

fn json(news: &News) -> String {
    serde_json::to_string(news).unwrap()
}

#[tokio::test]
async fn events_published_after_read_arrive_in_order() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let mut reader = world.bus.read(tenant, &session).await.unwrap();
    assert!(reader.is_joined());
    let event = Event {
        seq: 7,
        epoch: 2,
        id: EventId::make(&mut world.sample.ids, NOW).to_string(),
        kind: "session.idle".to_owned(),
        at: NOW.0,
        properties: RawValue::from_string(r#"{"z":1,  "a":"\u00e9"}"#.to_owned()).unwrap(),
    };
    let delta = Delta {
        epoch: 2,
        message: MessageId::make(&mut world.sample.ids, NOW),
        part: PartId::make(&mut world.sample.ids, NOW),
        offset: 12,
        text: "Hel".to_owned(),
    };
    let mut sent = vec![News::Event(event), News::Delta(delta)];
    sent.extend((0..500).map(beat));
    // Another process sends.
    let servers = testkit::servers().await;
    let other = bus::Bus::connect(&servers.nats_url, &servers.redis_url, &world.namespace).await.unwrap();
    let publisher = other.publisher();
    for news in &sent {
        publisher.publish(tenant, &session, news);
    }
    for news in &sent {
        let got = within("the news arrives", reader.next()).await.unwrap();
        assert_eq!(json(&got), json(news), "byte for byte");
    }
}

#[tokio::test]
async fn a_reader_receives_nothing_of_other_sessions_tenants_and_stacks() {
    let (mut world, stranger) = (World::new().await, World::new().await);
    let (tenant, other) = (world.sample.tenant(), world.sample.tenant());
    let (session, second) = (world.sample.session(), world.sample.session());
    let mut reader = world.bus.read(tenant, &session).await.unwrap();
    stranger.bus.publisher().publish(tenant, &session, &beat(1));
    let mut echo = stranger.bus.read(tenant, &session).await.unwrap();
    stranger.bus.publisher().publish(tenant, &session, &beat(2));
    within("the other stack's news is sent", echo.next()).await.unwrap();
    let publisher = world.bus.publisher();
    publisher.publish(other, &session, &beat(3));
    publisher.publish(tenant, &second, &beat(4));
    publisher.publish(tenant, &session, &beat(5));
    assert_eq!(json(&within("the news arrives", reader.next()).await.unwrap()), json(&beat(5)));
}

#[tokio::test]
async fn unreadable_messages_are_skipped() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let mut reader = world.bus.read(tenant, &session).await.unwrap();
    let nats = world.nats().await;
    let subject = format!("{}.v1.t.{tenant}.s.{session}.news", world.namespace);
    for payload in [r#"{"hologram":{}}"#.to_owned(), "no json".to_owned(), json(&beat(1))] {
        nats.publish(subject.clone(), payload.into()).await.unwrap();
    }
    assert_eq!(json(&within("the news arrives", reader.next()).await.unwrap()), json(&beat(1)));
}

#[tokio::test]
async fn fragments_that_have_arrived_and_continue_each_other_come_as_one() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let message = MessageId::make(&mut world.sample.ids, NOW);
    let [part, other] = [(); 2].map(|()| PartId::make(&mut world.sample.ids, NOW));
    let delta = |epoch, part: &PartId, offset, text: &str| {
        let (message, part, text) = (message.clone(), part.clone(), text.to_owned());
        News::Delta(Delta { epoch, message, part, offset, text })
    };
    let mut reader = world.bus.read(tenant, &session).await.unwrap();
    let mut of_tenant = world.bus.read_tenant(tenant).await.unwrap();
    let mut echo = world.bus.read(tenant, &session).await.unwrap();
    let publisher = world.bus.publisher();
    for news in [
        delta(1, &part, 0, "a"),
        delta(1, &part, 1, "é"),
        delta(1, &part, 3, "c"),
        // After a hole, of another part, and of another loop.
        delta(1, &part, 5, "e"),
        delta(1, &other, 6, "f"),
        delta(2, &other, 7, "g"),
        beat(1),
        beat(2),
    ] {
        publisher.publish(tenant, &session, &news);
    }
    // All readers share a connection, which keeps the order of messages.
    while json(&within("the news arrives", echo.next()).await.unwrap()) != json(&beat(2)) {}
    for want in [
        delta(1, &part, 0, "aéc"),
        delta(1, &part, 5, "e"),
        delta(1, &other, 6, "f"),
        delta(2, &other, 7, "g"),
        beat(1),
    ] {
        assert_eq!(json(&within("the news arrives", reader.next()).await.unwrap()), json(&want));
        let (subject, news) = within("the news arrives", of_tenant.next()).await.unwrap();
        assert_eq!((subject, json(&news)), (Some(Subject::Session(session.clone())), json(&want)));
    }
}

#[tokio::test]
async fn a_tenant_receives_notices_of_its_sessions_projects_and_itself() {
    let mut world = World::new().await;
    let (tenant, session) = (world.sample.tenant(), world.sample.session());
    let project = world.sample.project();
    let mut reader = world.bus.read_tenant(tenant).await.unwrap();
    let notice = Notice {
        id: "evt_1".to_owned(),
        kind: "project.updated".to_owned(),
        properties: RawValue::from_string("{}".to_owned()).unwrap(),
        directory: "app".to_owned(),
        reader: "ann".to_owned(),
    };
    let (publisher, stranger) = (world.bus.publisher(), world.sample.tenant());
    let subjects = [Subject::Tenant, Subject::Project(project), Subject::Session(session)];
    for of in &subjects {
        publisher.notify(stranger, of, &notice);
        publisher.notify(tenant, of, &notice);
    }
    for of in subjects {
        let (subject, news) = within("news arrives", reader.next()).await.unwrap();
        let News::Notice(notice) = news else { panic!("{news:?}") };
        assert_eq!((subject, notice.directory.as_str(), notice.reader.as_str()), (Some(of), "app", "ann"));
    }
}
