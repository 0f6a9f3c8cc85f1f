//! Every event of comprehensive turns on each stream, and the events that a resumed stream delivers.

use super::{client::Client, events::Events};
use e2e::{
    Stack,
    turn::{bash, task},
};
use futures::future::join;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// Notes of 400 KiB that are more than a gateway and the connection hold for a reader.
const NOTES: usize = 60;

#[tokio::test]
async fn every_event_has_the_shape_of_opencode_on_each_stream() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let mut own = Events::of(&client, "/event", "").await;
    let mut all = Events::of(&client, "/global/event", "").await;
    let mut native = Events::of(&client, "/api/event", "").await;
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    happenings(&client, &session, &mut own).await;

    let last = client.session(json!({})).await;
    for events in [&mut own, &mut all, &mut native] {
        events.until_session("session.created", &last).await;
    }
    for events in [&own, &all, &native] {
        for kind in [
            "file.watcher.updated",
            "message.part.delta",
            "message.part.updated",
            "message.removed",
            "message.updated",
            "permission.asked",
            "permission.replied",
            "question.asked",
            "question.replied",
            "question.rejected",
            "server.connected",
            "session.compacted",
            "session.created",
            "session.diff",
            "session.error",
            "session.idle",
            "session.status",
            "session.updated",
            "todo.updated",
        ] {
            let is_left_out = e2e::is_without("nats") && kind == "message.part.delta";
            assert!(
                is_left_out || events.kinds().contains(kind),
                "{kind} did not arrive: {:?}",
                events.kinds()
            );
        }
        for kind in ["text", "reasoning", "tool", "step-start", "step-finish", "patch", "compaction", "file"]
        {
            assert!(events.parts().contains(kind), "no part of type {kind} arrived: {:?}", events.parts());
        }
    }
    let begun =
        own.seen.iter().map(|event| &event["properties"]["part"]).filter(|part| part["type"] == "step-start");
    let begun: Vec<_> = begun.map(|part| part["id"].as_str().unwrap()).collect();
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), begun.len(), "a step starts once");
    let talk = client.get(&format!("/session/{session}/message")).await;
    let spoken = talk.as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    for part in spoken.filter(|part| part["type"] == "text") {
        let id = part["id"].as_str().unwrap();
        assert_eq!(own.text(id), part["text"].as_str().unwrap(), "the events match the stored messages");
    }
    client.expect(200, Method::DELETE, &format!("/session/{last}"), Value::Null).await;
    let (gone, _) =
        join(own.until_session("session.deleted", &last), all.until_session("session.deleted", &last)).await;
    assert_eq!(gone["properties"]["info"]["directory"], client.directory.as_str());
}

/// A turn with every kind of event.
async fn happenings(client: &Client, session: &str, events: &mut Events) {
    let at = format!("/session/{session}");
    let call = bash("echo said > told; cat told");
    client
        .prompt_async(
            session,
            &format!("@reason Let me think.\n@chunk 4\n@text I will look.\n{call}\n@text Done."),
        )
        .await;
    let permission = events.until_session("permission.asked", session).await;
    let id = permission["properties"]["id"].as_str().unwrap();
    client.post(&format!("/permission/{id}/reply"), json!({"reply": "once"})).await;
    events.until_session("session.idle", session).await;

    let todos = json!({"todos": [{"content": "Look", "status": "pending", "priority": "high"}]});
    client.prompt(session, &format!("@tool todowrite {todos}\n@text Noted.")).await;
    assert_eq!(client.get(&format!("{at}/todo")).await, todos["todos"]);

    let question = json!({"question": "Which?", "header": "Colour", "options": [{"label": "Red", "description": "red"}]});
    for (answer, body) in [("reply", json!({"answers": [["Red"]]})), ("reject", Value::Null)] {
        client
            .prompt_async(session, &format!("@tool question {}\n@text So.", json!({"questions": [question]})))
            .await;
        let event = events.until_session("question.asked", session).await;
        client
            .post(&format!("/question/{}/{answer}", event["properties"]["id"].as_str().unwrap()), body)
            .await;
        events.until_session("session.idle", session).await;
    }

    client.prompt(session, &format!("{}\n@text It is done.", task("@text Child here."))).await;
    events.until_session("session.idle", session).await;
    let children = client.get(&format!("{at}/children")).await;
    assert_eq!(
        (&children[0]["parentID"], &children[0]["directory"]),
        (&json!(session), &json!(client.directory))
    );
    let text = json!({"type": "text", "text": "@text A picture."});
    let file = json!({"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,YQ=="});
    client.post(&format!("{at}/message"), json!({"parts": [text, file]})).await;
    events.until_session("session.idle", session).await;

    client
        .prompt_async(
            session,
            "@delay 50\n@chunk 1\n@text This is never said to its end because somebody stops it.",
        )
        .await;
    events
        .until(|event| {
            event["properties"]["part"]["text"] == "" && event["properties"]["part"]["time"]["end"].is_null()
        })
        .await;
    client.post(&format!("{at}/abort"), Value::Null).await;
    events.until_session("session.idle", session).await;
    let failed = client.prompt(session, "@status 400").await;
    assert_eq!(failed["info"]["error"]["name"], "APIError", "{failed}");
    let last = client.prompt(session, "@text To be taken back.").await;
    let turned_back = json!({"messageID": last["info"]["parentID"]});
    client.post(&format!("{at}/revert"), turned_back.clone()).await;
    client.post(&format!("{at}/unrevert"), Value::Null).await;
    client.post(&format!("{at}/revert"), turned_back).await;
    client.prompt(session, "@text In its place.").await;
    client.post(&format!("{at}/summarize"), json!({"providerID": "chat", "modelID": "demo"})).await;
}

/// Tests a client that resumes with a cursor and one without: both know everything at the end.
#[tokio::test]
async fn a_cut_stream_resumes_without_loss() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let mut first = Events::of(&client, "/global/event", "").await;
    let words: Vec<String> = (0..60).map(|number| format!("word{number}")).collect();
    let words = words.join(" ");
    client.prompt_async(&session, &format!("@delay 20\n@chunk 6\n@text {words}")).await;
    first.until(|event| event["type"] == "message.part.delta").await;
    let cursor = first.cursor.clone();
    drop(first);
    // A part streams on while no client is subscribed.
    let mut with_cursor = Events::of(&client, "/global/event", &cursor).await;
    let mut without = Events::of(&client, "/global/event", "").await;
    join(with_cursor.until_session("session.idle", &session), without.until_idle(&session)).await;
    let talk = client.get(&format!("/session/{session}/message")).await;
    let part = &talk[1]["parts"][1];
    assert_eq!(part["text"], words.as_str());
    let id = part["id"].as_str().unwrap();
    for (who, events) in [("with a cursor", &with_cursor), ("without", &without)] {
        assert_eq!(events.text(id), words, "{who}");
        let kinds = events.seen.iter().map(|event| &event["type"]);
        let mut statuses = events.seen.iter().filter(|event| event["type"] == "session.status");
        assert_eq!(statuses.next_back().unwrap()["properties"]["status"]["type"], "idle", "{who}: {kinds:?}");
    }
    let mut late = Events::of(&client, "/global/event", "").await;
    late.until_idle(&session).await;
    assert_eq!(late.text(id), words, "a subscriber after the answer");
}

/// Tests what programs do with the SDK: subscribe, prompt, wait for the end of the turn, and read. The session has had turns before.
#[tokio::test]
async fn no_stream_announces_the_end_of_a_turn_that_ended_before_it_began() {
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let is_end = |event: &&Value| event["type"] == "session.idle";
    let ends = |events: &Events| events.seen.iter().filter(is_end).count();
    for path in ["/event", "/global/event", "/api/event"] {
        client.prompt(&session, "@text before").await;
        let mut events = Events::of(&client, path, "").await;
        let answer = format!("answer at {path}");
        client.prompt_async(&session, &format!("@text {answer}")).await;
        events.until_session("session.idle", &session).await;
        let talk = client.get(&format!("/session/{session}/message")).await;
        let last = talk.as_array().unwrap().last().unwrap().clone();
        assert!(last["parts"].to_string().contains(&answer), "{path}: {last}");
        // A page that is loaded again announces nothing.
        for _ in 0..2 {
            let mut events = Events::of(&client, path, "").await;
            let witness = client.session(json!({})).await;
            // The state that a new stream begins with may have it already.
            events.until(|event| event["properties"]["info"]["id"] == witness.as_str()).await;
            assert_eq!(ends(&events), 0, "{path}: {:?}", events.kinds());
        }
    }
}

/// Reads nothing while more happens than a gateway keeps for a slow reader.
#[tokio::test]
async fn a_slow_reader_gets_the_end_of_its_turn_once_and_no_other() {
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "/home/me/project");
    let [before, during] = [client.session(json!({})).await, client.session(json!({})).await];
    client.prompt(&before, "@text before").await;
    let mut slow = Events::of(&client, "/global/event", "").await;
    let text = "x".repeat(400 * 1024);
    let note = json!({"noReply": true, "parts": [{"type": "text", "text": text}]});
    for number in 0..NOTES {
        if number == NOTES / 2 {
            client.prompt(&during, "@text during").await;
        }
        let path = format!("/session/{before}/prompt_async");
        client.expect(204, Method::POST, &path, note.clone()).await;
    }
    slow.until_session("session.idle", &during).await;
    let last = client.session(json!({})).await;
    slow.until(|event| event["properties"]["info"]["id"] == last.as_str()).await;
    let ends = slow.seen.iter().filter(|event| event["type"] == "session.idle");
    let ends: Vec<_> = ends.map(|event| event["properties"]["sessionID"].as_str().unwrap()).collect();
    assert_eq!(ends, [during.as_str()]);
}

/// Reads an answer and is cut off again and again. At each time, each text that OpenCode's SDK would have gathered is the
/// beginning of the final text.
#[tokio::test]
async fn deltas_after_a_cut_fit_the_text_that_the_client_has() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({})).await;
    let words = |count: usize| (0..count).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
    let mut whole = Events::of(&client, "/event", "").await;
    let ended = CancellationToken::new();
    let end = async {
        whole.until_session("session.idle", &session).await;
        ended.cancel();
    };
    // A stream that begins after the end, and not where another one was cut, never tells of it.
    let read_anew = async |reader: &mut Reader, path: &str, shown_max| {
        let mut events = Events::of(&client, path, "").await;
        ended.run_until_cancelled(reader.read(&mut events, shown_max)).await;
    };
    let read = async |reader: &mut Reader, path: &str, shown_max, resumes: bool| {
        if !resumes {
            return read_anew(reader, path, shown_max).await;
        }
        let mut events = Events::of(&client, path, &reader.cursor).await;
        reader.read(&mut events, shown_max).await;
    };
    let reader = async |path: &str, resumes| {
        let mut reader = Reader::default();
        for cut in 1..=8 {
            read(&mut reader, path, cut, resumes).await;
            read_anew(&mut Reader::default(), "/event", 4).await;
        }
        read(&mut reader, path, usize::MAX, resumes).await;
        reader
    };
    let prompt = format!("@delay 20\n@chunk 5\n@reason {}\n@text {}", words(90), words(200));
    let ((), (), a, b, c, d) = tokio::join!(
        client.prompt_async(&session, &prompt),
        end,
        reader("/event", true),
        reader("/global/event", true),
        reader("/event", false),
        reader("/global/event", false),
    );
    let talk = client.get(&format!("/session/{session}/message")).await;
    let parts = talk[1]["parts"].as_array().unwrap();
    let finals: BTreeMap<&str, &str> =
        parts.iter().filter_map(|part| Some((part["id"].as_str()?, part["text"].as_str()?))).collect();
    assert_eq!(finals.len(), 2, "a reasoning and a text: {talk}");
    for (who, reader) in [("event", &a), ("global", &b), ("event, anew", &c), ("global, anew", &d)] {
        let answers = reader.shown.iter().filter(|(part, _)| finals.contains_key(part.as_str()));
        for (part, text) in answers {
            assert!(finals[part.as_str()].starts_with(text.as_str()), "{who} showed {text:?}");
        }
        let last: BTreeMap<&str, &str> =
            reader.shown.iter().map(|(part, text)| (part.as_str(), text.as_str())).collect();
        assert!(
            finals.iter().all(|(part, text)| who.contains("anew") || last[part] == *text),
            "{who}: {last:?}"
        );
    }
}

/// The texts of a client that is cut off and connects again.
#[derive(Default)]
struct Reader {
    cursor: String,
    texts: BTreeMap<String, String>,
    /// Each text that it showed, by part.
    shown: Vec<(String, String)>,
}

impl Reader {
    /// Reads until this many texts were shown, or the session is idle.
    async fn read(&mut self, events: &mut Events, shown_max: usize) {
        let mut count = 0;
        while count < shown_max {
            let event = events.next().await;
            self.cursor.clone_from(&events.cursor);
            let properties = &event["properties"];
            let (part, text) = match event["type"].as_str().unwrap() {
                "message.part.updated" if properties["part"]["text"].is_string() => {
                    let part = properties["part"]["id"].as_str().unwrap();
                    (part, properties["part"]["text"].as_str().unwrap().to_owned())
                }
                "message.part.delta" => {
                    let part = properties["partID"].as_str().unwrap();
                    let text = self.texts.get(part).map_or("", String::as_str);
                    (part, format!("{text}{}", properties["delta"].as_str().unwrap()))
                }
                "session.idle" => return,
                _ => continue,
            };
            self.texts.insert(part.to_owned(), text.clone());
            self.shown.push((part.to_owned(), text));
            count += 1;
        }
    }
}

#[tokio::test]
async fn a_resumed_stream_repeats_few_events() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let sessions = [client.session(json!({})).await, client.session(json!({})).await];
    for path in ["/event", "/global/event"] {
        let mut events = Events::of(&client, path, "").await;
        let rename = async |session: &str, title: &str| {
            let change = json!({"title": title});
            client.expect(200, Method::PATCH, &format!("/session/{session}"), change).await;
        };
        // Afterwards the stream has sent the state of the sessions, in which only the newest title stands.
        for session in &sessions {
            let title = format!("{path} begins");
            rename(session, &title).await;
            let is_renamed = |info: &Value| info["id"] == session.as_str() && info["title"] == title.as_str();
            events.until(|event| is_renamed(&event["properties"]["info"])).await;
        }
        for title in 0..30 {
            for session in &sessions {
                rename(session, &format!("{path} {title}")).await;
            }
        }
        events.until(|event| event["properties"]["info"]["title"] == format!("{path} 20")).await;
        let mut cursor = events.cursor.clone();
        let mut events_seen: Vec<Value> = std::mem::take(&mut events.seen);
        drop(events);
        for cut in 0..4 {
            let mut again = Events::of(&client, path, &cursor).await;
            let (own, last) = (&sessions[1], format!("{path} {}", 22 + 2 * cut));
            again
                .until(|event| {
                    let info = &event["properties"]["info"];
                    info["id"] == own.as_str() && info["title"] == last.as_str()
                })
                .await;
            cursor.clone_from(&again.cursor);
            let ids: BTreeSet<&str> = events_seen.iter().map(|event| event["id"].as_str().unwrap()).collect();
            let repeated =
                again.seen.iter().filter(|event| ids.contains(event["id"].as_str().unwrap())).count();
            assert!(repeated <= 10, "{path}, cut {cut}: {repeated} events are repeated");
            events_seen.extend(again.seen);
        }
        let titles = |session: &str| {
            let of_session = events_seen.iter().filter(|event| event["properties"]["info"]["id"] == session);
            of_session.map(|event| event["properties"]["info"]["title"].to_string()).collect::<BTreeSet<_>>()
        };
        for title in 0..29 {
            let title = format!("\"{path} {title}\"");
            assert!(titles(&sessions[1]).contains(&title), "{title} was not sent");
        }
    }
}

#[tokio::test]
async fn all_clients_of_a_directory_get_the_same_frames() {
    if e2e::is_left_out(&["nats"], "pieces of text come through NATS only") {
        return;
    }
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let session = client.session(json!({"title": "shared"})).await;
    let (mut first, mut second) =
        (Events::of(&client, "/event", "").await, Events::of(&client, "/event", "").await);
    let pieces = |events: &Events| {
        let pieces = events.seen.iter().filter(|event| event["type"] == "message.part.delta");
        pieces.cloned().collect::<Vec<Value>>()
    };
    // A gateway that is busy sends a text that is complete already as a whole.
    for _ in 0..5 {
        client.prompt_async(&session, "@chunk 4\n@text A text in pieces.").await;
        for events in [&mut first, &mut second] {
            events.until_session("session.idle", &session).await;
        }
        if !pieces(&first).is_empty() {
            break;
        }
    }
    assert!(!pieces(&first).is_empty(), "{:?}", first.kinds());
    assert_eq!(pieces(&first), pieces(&second), "with the same ids: they are encoded once");
}

/// Lasts a whole period: proxies and clients count on ten seconds. The streams wait together.
#[tokio::test]
async fn idle_streams_show_that_they_are_alive() {
    let stack = Stack::gateway_alone().await;
    let client = Client::new(&stack, "/home/me/project");
    let beat = async |path: &str| {
        let mut events = Events::of(&client, path, "").await;
        let event = events.next().await;
        assert_eq!(
            (&event["type"], &event["properties"]),
            (&json!("server.heartbeat"), &json!({})),
            "{path}"
        );
    };
    tokio::join!(beat("/event"), beat("/global/event"));
}

/// A new subscriber receives an open permission.
#[tokio::test]
async fn open_requests_are_delivered_to_late_subscribers() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let mut first = Events::of(&client, "/event", "").await;
    client.prompt_async(&session, &bash("true")).await;
    let permission = first.until_session("permission.asked", &session).await;
    for path in ["/event", "/global/event"] {
        let again = Events::of(&client, path, "").await.until_session("permission.asked", &session).await;
        assert_eq!(again["properties"], permission["properties"], "{path}");
    }
    let elsewhere = Client { directory: "/home/me/other".to_owned(), ..client.clone() };
    let other = elsewhere.session(json!({})).await;
    let mut events = Events::of(&elsewhere, "/event", "").await;
    elsewhere.prompt_async(&other, "@text mine").await;
    events.until_session("session.idle", &other).await;
    let sessions = events.seen.iter().filter_map(|event| event["properties"]["sessionID"].as_str());
    assert!(sessions.into_iter().all(|session_id| session_id == other), "only the events of its directory");
    let stranger = Client { key: stack.other_tenant().await.key, ..client.clone() };
    let mut events = Events::of(&stranger, "/global/event", "").await;
    let own = stranger.session(json!({})).await;
    events.until_session("session.created", &own).await;
    assert!(
        events.seen.iter().all(|event| event["properties"]["sessionID"] != session.as_str()),
        "only the events of its session"
    );
}

/// An older client requests the event shapes that it knows.
#[tokio::test]
async fn a_client_can_request_the_older_event_shapes() {
    let stack = Stack::start().await;
    let client = Client::new(&stack, "/home/me/project");
    let rule = json!({"permission": "bash", "pattern": "*", "action": "ask"});
    let session = client.session(json!({"permission": [rule]})).await;
    let refused = client.request(reqwest::Method::GET, "/event?shapes=oldest").send().await.unwrap();
    assert_eq!(refused.status(), 400);
    let request = client.request(reqwest::Method::GET, "/event?shapes=older");
    let mut stream = request.send().await.unwrap();
    client.prompt_async(&session, &bash("true")).await;
    let mut frames = String::new();
    let mut until = async |what: &str| {
        while !frames.contains(what) {
            let chunk =
                tokio::time::timeout(std::time::Duration::from_secs(40), stream.chunk()).await.unwrap();
            frames.push_str(std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap());
        }
        frames.clone()
    };
    until("permission.updated").await;
    let permission_id = client.get("/permission").await[0]["id"].as_str().unwrap().to_owned();
    client.post(&format!("/permission/{permission_id}/reply"), json!({"reply": "once"})).await;
    assert!(until("\"session.idle\"").await.contains(&format!("\"permissionID\":\"{permission_id}\"")));
}
