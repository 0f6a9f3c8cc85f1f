//! A fake gateway that loses the connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use futures::stream::{self, BoxStream};
use rpc::v1::{
    SubscribeAllRequest, SubscribeAllResponse, SubscribeResponse,
    event_service_server::{EventService, EventServiceServer},
    subscribe_response,
};
use std::sync::{Arc, Mutex};
use tonic::{Request, Response};

type Answers = Vec<Result<SubscribeResponse, Status>>;

/// Returns one list of answers per call, and remembers the cursors of the calls; "now" for the tail.
#[derive(Clone, Default)]
struct Fake {
    calls: Arc<Mutex<Vec<Answers>>>,
    cursors: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl EventService for Fake {
    type SubscribeAllStream = BoxStream<'static, Result<SubscribeAllResponse, Status>>;
    type SubscribeStream = BoxStream<'static, Result<SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer key");
        let request = request.into_inner();
        let cursor = if request.tail_only { "now".to_owned() } else { request.cursor };
        self.cursors.lock().unwrap().push(cursor);
        let answers = self.calls.lock().unwrap().remove(0);
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }

    async fn subscribe_all(
        &self,
        _: Request<SubscribeAllRequest>,
    ) -> Result<Response<Self::SubscribeAllStream>, Status> {
        Ok(Response::new(Box::pin(stream::empty())))
    }
}

fn event(seq: u64, kind: &str, properties: &str) -> Result<SubscribeResponse, Status> {
    let event = rpc::v1::Event {
        seq,
        epoch: 1,
        kind: kind.to_owned(),
        properties_json: properties.to_owned().into_bytes().into(),
        at_ms: 0,
        id: String::new(),
    };
    Ok(SubscribeResponse { item: Some(subscribe_response::Item::Event(event)), cursor: format!("c{seq}") })
}

enum From {
    Start,
    Now { first: u64 },
}

async fn check<const N: usize>(
    calls: Vec<Answers>,
    (from, until): (From, Until),
    expected: Result<StreamEnd, &str>,
    seqs: &[u64],
    cursors: [&str; N],
) {
    let fake = Fake::default();
    *fake.calls.lock().unwrap() = calls;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(EventServiceServer::new(fake.clone()));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let client = Client::at(&url, &"key".parse().unwrap()).unwrap();
    let mut got = Vec::new();
    let mut reading = match from {
        From::Start => Reading::of_all(&client, "ses_1"),
        From::Now { first } => Reading::of_what_comes(&client, "ses_1").await.unwrap().not_before(first),
    };
    let end = reading.follow(until, |item| {
        if let Item::Event(event) = item {
            got.push(event.seq);
        }
        Ok(())
    });
    let end = end.await.map_err(|error| crate::exit::sentence(&error).unwrap());
    assert_eq!(end, expected.map_err(str::to_owned));
    assert_eq!(
        (got.as_slice(), fake.cursors.lock().unwrap().as_slice()),
        (seqs, cursors.map(str::to_owned).as_slice())
    );
    server.abort();
}

#[tokio::test]
async fn a_lost_connection_resumes_behind_the_last_event() {
    let calls = vec![
        vec![event(1, "a", "{}"), event(2, "b", "{}"), Err(Status::unavailable("gone"))],
        vec![], // the gateway drains
        vec![
            event(2, "b", "{}"),
            event(3, "session.idle", r#"{"outcome":"failed"}"#),
            event(4, "late", "{}"),
        ],
    ];
    check(
        calls,
        (From::Start, Until::IdleAfter(2)),
        Ok(StreamEnd::Idle("failed".to_owned())),
        &[1, 2, 3],
        ["", "c2", "c2"],
    )
    .await;
}

#[tokio::test]
async fn the_end_of_an_earlier_turn_is_not_the_end() {
    let idle = |seq| event(seq, "session.idle", r#"{"outcome":"done"}"#);
    check(
        vec![vec![idle(1), idle(2)]],
        (From::Start, Until::IdleAfter(2)),
        Ok(StreamEnd::Idle("done".to_owned())),
        &[1, 2],
        [""],
    )
    .await;
    check(vec![vec![idle(1), idle(2)]], (From::Start, Until::Seen(1)), Ok(StreamEnd::Seen), &[1], [""]).await;
}

#[tokio::test]
async fn the_tail_shows_one_turn_even_when_it_is_lost_before_the_first_event() {
    let idle = |seq| event(seq, "session.idle", r#"{"outcome":"done"}"#);
    let done = || Ok(StreamEnd::Idle("done".to_owned()));
    let wish = || (From::Now { first: 3 }, Until::IdleAfter(4));
    let calls = vec![vec![event(3, "a", "{}"), Err(Status::unavailable("gone"))], vec![idle(4)]];
    check(calls, wish(), done(), &[3, 4], ["now", "c3"]).await;
    let again = vec![event(1, "a", "{}"), idle(2), event(3, "a", "{}"), idle(4)];
    check(vec![vec![], again], wish(), done(), &[3, 4], ["now", ""]).await;
}

#[tokio::test]
async fn a_refusal_is_not_tried_again() {
    let refusal = rpc::status::error(rpc::v1::ErrorCode::SessionNotFound, "there is no session ses_1");
    let expected =
        "follow the session: there is no session ses_1 (session_not_found); `flotilla ls` lists the sessions";
    check(vec![vec![Err(refusal)]], (From::Start, Until::IdleAfter(0)), Err(expected), &[], [""]).await;
}

#[tokio::test]
async fn a_wait_for_a_human_is_an_end_and_a_wait_for_others_is_none() {
    let needs_human = || Ok(StreamEnd::Idle("needs_human".to_owned()));
    let waits = |seq, reason| event(seq, "flotilla.session.waiting", &format!(r#"{{"reason":"{reason}"}}"#));
    let permission = event(2, "permission.asked", "{}");
    let from = || (From::Start, Until::IdleAfter(2));
    let calls = vec![vec![waits(1, "question"), permission, waits(3, "children"), waits(4, "permission")]];
    check(calls, from(), needs_human(), &[1, 2, 3, 4], [""]).await;
    let quarantined = event(2, "flotilla.session.quarantined", r#"{"reason":"x"}"#);
    check(vec![vec![quarantined]], from(), needs_human(), &[2], [""]).await;
}
