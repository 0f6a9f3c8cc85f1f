//! Many subscribers of one session, and subscribers of many sessions.

use domain::ids::{EventId, Ids, SessionId, TenantId, Timestamp};
use e2e::{
    Options, Stack,
    api::{Api, assert_refused},
    turn::{Watch, run},
};
use rpc::v1::{self, subscribe_all_response::Item};
use std::{collections::BTreeMap, time::Duration};
use tonic::{Code, Streaming};

/// Time limit for an expected event.
const PATIENCE: Duration = Duration::from_secs(40);

/// A subscriber to all sessions of a tenant or a project.
struct All {
    stream: Streaming<v1::SubscribeAllResponse>,
    cursor: String,
    /// Positions and kinds of the events by session, in the order of their arrival.
    seen: BTreeMap<String, Vec<(u64, String)>>,
}

impl All {
    async fn of(api: &Api, project_id: &str, cursor: &str) -> Self {
        let (project_id, cursor) = (project_id.to_owned(), cursor.to_owned());
        let request = v1::SubscribeAllRequest { project_id, cursor: cursor.clone() };
        let stream = api.events().subscribe_all(request).await.unwrap().into_inner();
        Self { stream, cursor, seen: BTreeMap::new() }
    }

    async fn next(&mut self) -> v1::SubscribeAllResponse {
        let next = tokio::time::timeout(PATIENCE, self.stream.message()).await;
        let next = next.unwrap().unwrap().unwrap();
        self.cursor.clone_from(&next.cursor);
        if let Some(Item::Event(event)) = &next.item {
            let events = self.seen.entry(next.session_id.clone()).or_default();
            events.push((event.seq, event.kind.clone()));
        }
        next
    }

    async fn until_idle(&mut self, session: &str) {
        loop {
            let next = self.next().await;
            if let Some(Item::Event(event)) = next.item
                && (next.session_id.as_str(), event.kind.as_str()) == (session, "session.idle")
            {
                return;
            }
        }
    }

    async fn until_deleted(&mut self, session: &str) {
        let is_told = |all: &Self| {
            all.seen
                .get(session)
                .is_some_and(|events| events.iter().any(|(_, kind)| kind == "session.deleted"))
        };
        while !is_told(self) {
            self.next().await;
        }
    }

    /// Returns the positions of a session without repetitions; each follows the previous one.
    fn positions(&self, session: &str) -> Vec<u64> {
        let mut positions: Vec<u64> = self.seen[session].iter().map(|(seq, _)| *seq).collect();
        positions.sort_unstable();
        positions.dedup();
        assert!(positions.windows(2).all(|pair| pair[1] == pair[0] + 1), "{positions:?}");
        positions
    }
}

async fn project(api: &Api, name: &str) -> String {
    let request = v1::CreateProjectRequest { name: name.to_owned(), ..Default::default() };
    api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id
}

async fn session_in(api: &Api, project_id: &str) -> String {
    let request = v1::CreateSessionRequest { project_id: project_id.to_owned(), ..Default::default() };
    api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
}

#[tokio::test]
async fn a_stream_of_all_sessions_misses_no_event() {
    let stack = Stack::without_sandbox().await;
    let api = &stack.api;
    let (mut all, other) = (All::of(api, "", "").await, project(api, "other").await);
    let mut of_other = All::of(api, &other, "").await;
    let stranger = stack.other_tenant().await;
    let mut of_stranger = All::of(&stranger, "", "").await;
    let (one, two) = (stack.session().await, session_in(api, &other).await);
    assert_eq!(run(api, &one, "@text One.").await.0, "done");
    all.until_idle(&one).await;
    let cursor = all.cursor.clone();
    let known = all.positions(&one);
    assert_eq!(known[0], 1, "from its beginning");
    let known_of_two = all.seen.get(&two).map_or(0, |events| events.last().unwrap().0);
    // A new subscriber catches up on events from before its subscription.
    drop(all);
    let (_, transcript) = run(api, &two, "@text Two.").await;
    let (_, again) = run(api, &one, "@text Again.").await;
    let mut all = All::of(api, "", &cursor).await;
    while all.seen.get(&one).is_none_or(|events| events.last().unwrap().0 < again.events.last().unwrap().seq)
        || all
            .seen
            .get(&two)
            .is_none_or(|events| events.last().unwrap().0 < transcript.events.last().unwrap().seq)
    {
        all.next().await;
    }
    for (session, known) in [(&one, *known.last().unwrap()), (&two, known_of_two)] {
        assert!(all.positions(session)[0] <= known + 1, "no gap after the cursor");
    }
    // After that it receives live events.
    assert_eq!(run(api, &two, "@text Live.").await.0, "done");
    all.until_idle(&two).await;
    all.positions(&two);
    of_other.until_idle(&two).await;
    assert_eq!(of_other.seen.keys().collect::<Vec<_>>(), [&two], "only the notices of its project");
    let own = stranger.session(None).await;
    stranger.prompt(&own, "@text Mine.").await.unwrap();
    of_stranger.until_idle(&own).await;
    assert_eq!(of_stranger.seen.keys().collect::<Vec<_>>(), [&own], "only the notices of its tenant");
}

#[tokio::test]
async fn terminal_notices_are_live_only() {
    if e2e::is_left_out(&["nats"], "notices come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut all = All::of(&stack.api, "", "").await;
    let request = v1::CreatePtyRequest { session_id: session.clone(), ..Default::default() };
    let terminal = stack.api.ptys().create_pty(request).await.unwrap().into_inner().pty.unwrap();
    let notice = loop {
        let next = all.next().await;
        if let Some(Item::Notice(notice)) = next.item {
            assert_eq!(next.session_id, session);
            break notice;
        }
    };
    assert_eq!(notice.kind, "pty.created");
    assert!(String::from_utf8(notice.properties_json.to_vec()).unwrap().contains(&terminal.id));
}

#[tokio::test]
async fn project_notices_reach_the_subscribers_of_the_project() {
    if e2e::is_left_out(&["nats"], "notices come through NATS only") {
        return;
    }
    let stack = Stack::gateway_alone().await;
    let request = v1::CreateProjectRequest { name: "other".to_owned(), ..Default::default() };
    let other = stack.api.projects().create_project(request).await.unwrap().into_inner().project.unwrap().id;
    let mut all = All::of(&stack.api, "", "").await;
    let mut own = All::of(&stack.api, &stack.api.project_id, "").await;
    let settle = async |project_id: &str| {
        let request = v1::SetSettingsRequest { project_id: project_id.to_owned(), document: String::new() };
        stack.api.settings().set_settings(request).await.unwrap();
    };
    settle(&other).await;
    settle(&stack.api.project_id).await;
    settle("").await;
    let next = async |stream: &mut All| loop {
        let next = stream.next().await;
        assert_eq!(next.session_id, "");
        if let Some(Item::Notice(notice)) = next.item {
            break (notice.kind, next.project_id);
        }
    };
    for (stream, projects) in
        [(&mut all, &[&other, &stack.api.project_id][..]), (&mut own, &[&stack.api.project_id])]
    {
        for project in projects {
            assert_eq!(next(stream).await, ("server.instance.disposed".to_owned(), (*project).clone()));
        }
        assert_eq!(next(stream).await, ("global.disposed".to_owned(), String::new()));
    }
}

#[tokio::test]
async fn deletions_are_delivered_once_also_to_returning_clients() {
    let stack = Stack::without_sandbox().await;
    let (kept, gone) = (stack.session().await, stack.session().await);
    let mut all = All::of(&stack.api, "", "").await;
    let mut early = All::of(&stack.api, "", "").await;
    run(&stack.api, &kept, "@text before").await;
    early.until_idle(&kept).await;
    let cursor = early.cursor.clone();
    drop(early);
    let request = v1::DeleteSessionRequest { session_id: gone.clone() };
    stack.api.sessions().delete_session(request).await.unwrap();
    run(&stack.api, &kept, "@text after").await;
    let mut late = All::of(&stack.api, "", &cursor).await;
    for (stream, turns) in [(&mut all, 2), (&mut late, 1)] {
        for _ in 0..turns {
            stream.until_idle(&kept).await;
        }
        stream.until_deleted(&gone).await;
        let deletions = stream.seen[&gone].iter().filter(|(_, kind)| kind == "session.deleted");
        assert_eq!(deletions.count(), 1);
    }
}

#[tokio::test]
async fn a_deletion_whose_notice_was_lost_is_still_delivered() {
    let nats_url = Some("nats://127.0.0.1:9".to_owned());
    let stack = Stack::with(Options { nats_url, workers: 0, sandbox: false, ..Options::default() }).await;
    let session = stack.session().await;
    let mut all = All::of(&stack.api, "", "").await;
    let request = v1::DeleteSessionRequest { session_id: session.clone() };
    stack.api.sessions().delete_session(request).await.unwrap();
    all.until_deleted(&session).await;
}

#[tokio::test]
async fn forged_cursors_of_a_tenant_stream_are_refused() {
    let stack = Stack::gateway_alone().await;
    let api = &stack.api;
    for cursor in ["v1.1", "t1.", "t1.x", "t1.-1", "t1.18446744073709551615", "t1.9223372036854775807", "1"] {
        let request = v1::SubscribeAllRequest { cursor: cursor.to_owned(), ..Default::default() };
        let refused = api.events().subscribe_all(request).await;
        assert_refused(refused, Code::InvalidArgument, "cursor_invalid");
    }
    let nowhere = v1::SubscribeAllRequest { project_id: "nonsense".to_owned(), ..Default::default() };
    assert_refused(api.events().subscribe_all(nowhere).await, Code::NotFound, "project_not_found");
}

/// Each of many subscribers receives everything. One that does not read delays no other and misses no event.
#[tokio::test]
async fn many_subscribers_receive_the_same_session() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut lazy = Watch::start(&stack.api, &session).await;
    let mut watches = vec![];
    for _ in 0..20 {
        watches.push(Watch::start(&stack.api, &session).await);
    }
    let words = "words and ".repeat(400);
    for turn in 0..6 {
        stack.api.prompt(&session, &format!("@chunk 4\n@text {words}{turn}")).await.unwrap();
        for watch in &mut watches {
            assert_eq!(watch.until_idle().await, "done");
        }
    }
    for watch in &watches {
        watch.transcript.assert_gap_free();
        watch.transcript.assert_deltas_agree();
        assert_eq!(watch.transcript.kinds(), watches[0].transcript.kinds());
    }
    for _ in 0..6 {
        assert_eq!(lazy.until_idle().await, "done");
    }
    lazy.transcript.assert_gap_free();
    lazy.transcript.assert_deltas_agree();
    assert_eq!(lazy.transcript.kinds(), watches[0].transcript.kinds());
}

/// Renames a session, as a gateway does that crashes before it sends the notice.
async fn name_silently(stack: &Stack, session: &str, at: Timestamp) {
    let store = store::Store::connect(&stack.database.app_url, &stack.database.system_url, 2).unwrap();
    let (tenant, id): (TenantId, SessionId) =
        (stack.api.tenant_id.parse().unwrap(), session.parse().unwrap());
    let patch = store::session::sessions::Patch { title: Some("silent".to_owned()), ..Default::default() };
    let event = EventId::make(&mut Ids::new([7; 32]), at);
    store.update_session(tenant, &id, &patch, &event, at).await.unwrap();
}

async fn name(api: &Api, session: &str, title: &str) {
    let request = v1::UpdateSessionRequest {
        session_id: session.to_owned(),
        update_mask: Some(prost_types::FieldMask { paths: vec!["title".to_owned()] }),
        title: title.to_owned(),
        ..Default::default()
    };
    api.sessions().update_session(request).await.unwrap();
}

#[tokio::test]
async fn an_event_whose_notice_was_lost_comes_before_later_events() {
    let stack = Stack::gateway_alone().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let mut all = All::of(&stack.api, "", "").await;
    watch.until(|event| event.kind == "session.created").await;
    // The gateway's line and feed know nothing of the session yet.
    for (number, round) in [(1, "first"), (2, "second")] {
        name_silently(&stack, &session, Timestamp(number)).await;
        name(&stack.api, &session, round).await;
        let update = watch.until(|event| event.properties["info"]["title"] == round).await;
        while all.seen.get(&session).and_then(|events| events.last()).is_none_or(|last| last.0 < update.seq) {
            all.next().await;
        }
        let seqs: Vec<u64> = watch.transcript.events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=update.seq).collect::<Vec<_>>());
        assert!(all.positions(&session).contains(&(update.seq - 1)), "{:?}", all.seen);
    }
    // If no later notice arrives, the gateway polls for the event.
    name_silently(&stack, &session, Timestamp(3)).await;
    let head = stack.api.get(&session).await.event_seq;
    watch.until(|event| event.seq == head).await;
    while !all.positions(&session).contains(&head) {
        all.next().await;
    }
}
