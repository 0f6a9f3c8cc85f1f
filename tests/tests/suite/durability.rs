//! Outages of parts of the stack: no work is lost, only time.

use bus::queue::{Claim, ReleaseTo};
use domain::ids::SessionId;
use e2e::{
    DatabaseUrls, Options, Stack,
    turn::{Watch, run},
};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use rpc::v1;
use std::time::{Duration, Instant};
use testkit::proxy::{
    Proxy,
    link::{ConnectionEnd, Rules},
};

/// A prompt that streams long enough to interrupt it.
const LONG: &str =
    "@delay 40\n@chunk 4\n@text This answer is long enough that something can happen in the middle of it.";

#[tokio::test]
async fn another_worker_continues_after_a_crash_without_duplicates() {
    let mut stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    // The first attempt stalls, so that it cannot end before its worker does.
    stack.api.prompt(&session, &format!("@stall 3 times=1\n{LONG}")).await.unwrap();
    watch.until_answering().await;
    stack.crash_worker(0);
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let starts: Vec<_> =
        watch.transcript.events.iter().filter(|event| event.kind == "flotilla.loop.started").collect();
    assert_eq!(starts.len(), 2, "the subscriber receives the takeover");
    assert_eq!((starts[1].epoch, starts[1].properties["attempt"].as_i64()), (2, Some(2)));
    let talk = stack.api.conversation(&session).await;
    let texts: Vec<_> = talk[1].1.iter().filter(|part| part["type"] == "text").collect();
    assert_eq!((talk.len(), texts.len()), (2, 1), "the failed attempt's parts are replaced");
    assert!(texts[0]["text"].as_str().unwrap().ends_with("in the middle of it."));
}

#[tokio::test]
async fn a_successor_attaches_to_a_running_command() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let command = "echo ran >> count; echo begun; sleep 9; cat count";
    let prompt = format!("@tool bash {{\"command\":\"{command}\"}}\n@text {{{{last_tool_result}}}}");
    stack.api.prompt(&session, &prompt).await.unwrap();
    // The first state of the call means that the command is about to start; its output means that it has started.
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "begun\n").await;
    stack.add_worker().await;
    stack.crash_worker(0);
    let part = watch.until_tool("completed").await;
    assert_eq!(part["state"]["output"], "begun\nran\n", "it ran once");
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn a_drained_worker_hands_over_at_once() {
    let mut stack = Stack::with(Options { workers: 2, ..Options::default() }).await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = "@tool bash {\"command\":\"sleep 1\"}\n@tool bash {\"command\":\"sleep 1\"}\n@text over";
    stack.api.prompt(&session, prompt).await.unwrap();
    let started = watch.until(|event| event.kind == "flotilla.loop.started").await;
    watch.until_tool("running").await;
    let index = if started.properties["worker"] == "worker-1" { 0 } else { 1 };
    stack.drain_worker(index).await;
    let again = watch.until(|event| event.kind == "flotilla.loop.started").await;
    assert_eq!(again.properties["attempt"], 1, "a handover is not a failed attempt");
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn a_draining_worker_still_obeys_aborts() {
    let mut stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let (api, operator) = (stack.api.clone(), stack.operator());
    let mut watch = Watch::start(&api, &session).await;
    api.prompt(&session, "@stall 1\n@chunk 4\n@text never whole").await.unwrap();
    watch.until_answering().await;
    // There is no other worker that could close it.
    let aborted = async {
        let is_draining = async || {
            let workers = operator.admin().list_workers(v1::ListWorkersRequest::default()).await;
            workers.unwrap().into_inner().workers[0].draining
        };
        testkit::eventually("the worker drains", is_draining).await;
        assert!(api.abort(&session).await.unwrap());
        assert_eq!(watch.until_idle().await, "aborted");
    };
    tokio::join!(stack.drain_worker(0), aborted);
}

#[tokio::test]
async fn an_emptied_redis_is_refilled_with_running_sessions() {
    if e2e::is_left_out(&["redis"], "it is about Redis") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@stall 1\n@chunk 4\n@text never whole").await.unwrap();
    watch.until_answering().await;
    let workers = stack.operator().admin().list_workers(v1::ListWorkersRequest::default()).await.unwrap();
    let (bus, worker) = (stack.bus().await, workers.into_inner().workers.remove(0).incarnation);
    let id: SessionId = session.parse().unwrap();
    let tenant = stack.api.tenant_id.parse().unwrap();
    let held = async || bus.list_held(&worker).await.unwrap();
    let own = Claim { tenant, session: id.clone() };
    assert_eq!(held().await, std::slice::from_ref(&own));
    // Simulates a worker whose lease expired for a while.
    bus.release(tenant, &id, &worker, ReleaseTo::Rest).await.unwrap();
    testkit::eventually("it is known again", async || held().await.contains(&own)).await;
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
}

#[tokio::test]
async fn an_abort_ends_a_stream_at_once_and_keeps_its_text() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("@stall 3\n{LONG}")).await.unwrap();
    watch.until_text().await;
    let begun = Instant::now();
    assert!(stack.api.abort(&session).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1), "the answer does not wait for the loop");
    assert_eq!(watch.until_idle().await, "aborted");
    let talk = stack.api.conversation(&session).await;
    assert_eq!(talk[1].0["error"]["name"], "MessageAbortedError");
    let text = talk[1].1.iter().find(|part| part["type"] == "text").unwrap();
    assert!(text["text"].as_str().unwrap().starts_with("This") && text["time"]["end"].is_number());
    let (outcome, _) = run(&stack.api, &session, "@text again").await;
    assert_eq!(outcome, "done");
}

#[tokio::test]
async fn a_prompt_during_a_retry_is_answered_once() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@status 500 times=1\n@text first").await.unwrap();
    watch.until(|event| event.properties["status"]["type"] == "retry").await;
    stack
        .api
        .prompt(&session, "@tool bash {\"command\":\"echo ran >> count; cat count\"}\n@text over")
        .await
        .unwrap();
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let calls = stack.api.tool_calls(&session).await;
    assert_eq!(calls.iter().map(|call| call.result.as_str()).collect::<Vec<_>>(), ["ran\n"], "it ran once");
    let talk = stack.api.conversation(&session).await;
    let open =
        talk.iter().filter(|(info, _)| info["role"] == "assistant" && info["time"]["completed"].is_null());
    assert_eq!(open.count(), 0, "the step for the first prompt is closed");
}

/// Runs turns of a few milliseconds with prompts at any moment, including between a turn's last step and its parking.
#[tokio::test]
async fn prompts_at_the_very_end_of_a_turn_are_all_answered() {
    let stack = Stack::without_sandbox().await;
    let sessions = [stack.session().await, stack.session().await, stack.session().await];
    let prompted = sessions.iter().map(async |session| {
        for number in 0..100_u64 {
            stack.api.prompt(session, &format!("@text {number}")).await.unwrap();
            // This sleep waits for no event: it spreads the prompts over all moments of a turn.
            tokio::time::sleep(Duration::from_millis(number % 17)).await;
        }
    });
    futures::future::join_all(prompted).await;
    for session in &sessions {
        testkit::eventually("the session is idle", || async {
            stack.api.get(session).await.state() == rpc::v1::SessionState::Idle
        })
        .await;
        let talk = stack.api.conversation(session).await;
        assert_eq!(talk.last().unwrap().0["role"], "assistant", "the last prompt is answered");
    }
}

/// A stack without workers, and a session with a prompt and its abort.
async fn aborted_without_a_worker() -> (Stack, String) {
    let stack = Stack::gateway_alone().await;
    let session = stack.session().await;
    stack.api.prompt(&session, "@text never said").await.unwrap();
    assert!(stack.api.abort(&session).await.unwrap());
    (stack, session)
}

#[tokio::test]
async fn an_abort_without_any_worker_is_kept_until_there_is_one() {
    let (mut stack, session) = aborted_without_a_worker().await;
    stack.add_worker().await;
    assert_eq!(Watch::start(&stack.api, &session).await.until_idle().await, "aborted");
    assert!(stack.model.journal.requests().is_empty(), "there was no model call");
}

/// Makes the third reader of a mailbox wait for the test: the loop that stops a turn. It already has the snapshot that it reads.
const GATE: &str = "create sequence reader;
    create function gate() returns uuid language plpgsql security definer as $$ begin
      if current_query() like 'select seq, kind, dedupe,%' and nextval('reader') = 3 then
        perform pg_advisory_xact_lock_shared(1);
      end if;
      return nullif(current_setting('app.tenant', true), '')::uuid;
    end $$;
    alter policy tenant_only on session_input using (tenant_id = (select gate()));
    select pg_advisory_lock(1)";

#[tokio::test]
async fn an_abort_does_not_end_a_prompt_that_comes_while_the_loop_reads_it() {
    let (mut stack, session) = aborted_without_a_worker().await;
    let mut gate = testkit::database::connect(&stack.database.migrator_url).await;
    sqlx::raw_sql(GATE).execute(&mut gate).await.unwrap();
    stack.add_worker().await;
    testkit::eventually("the loop has read the abort", async || waits_at_gate(&stack).await).await;
    stack.api.prompt(&session, "@text The answer.").await.unwrap();
    sqlx::raw_sql("select pg_advisory_unlock(1)").execute(&mut gate).await.unwrap();
    assert_eq!(Watch::start(&stack.api, &session).await.until_idle().await, "done");
    let talk = stack.api.conversation(&session).await;
    let steps = talk.iter().filter(|(info, _)| info["role"] == "assistant");
    let errors: Vec<_> = steps.map(|(info, _)| info["error"]["name"].as_str()).collect();
    assert_eq!(errors, [Some("MessageAbortedError"), None]);
}

/// Whether a reader waits at the [`GATE`].
async fn waits_at_gate(stack: &Stack) -> bool {
    let mut owner = stack.database.owner().await;
    let sql = "select exists (select from pg_locks where locktype = 'advisory' and not granted
                 and database = (select oid from pg_database where datname = current_database()))";
    sqlx::query_scalar(sql).fetch_one(&mut *owner).await.unwrap()
}

#[tokio::test]
async fn prompts_wait_for_a_worker_and_show_their_queue_position() {
    let mut stack = Stack::gateway_alone().await;
    let (first, second) = (stack.session().await, stack.session().await);
    assert_eq!(stack.api.prompt(&first, "@text a").await.unwrap().queue_position, 1);
    assert_eq!(stack.api.prompt(&second, "@text b").await.unwrap().queue_position, 2);
    assert_eq!(stack.api.get(&second).await.queue_position, 2);
    stack.add_worker().await;
    for session in [first, second] {
        assert_eq!(Watch::start(&stack.api, &session).await.until_idle().await, "done");
    }
}

#[tokio::test]
async fn everything_works_without_redis_and_nats() {
    let nowhere = |scheme: &str| Some(format!("{scheme}://127.0.0.1:9"));
    let options = Options { redis_url: nowhere("redis"), nats_url: nowhere("nats"), ..Options::default() };
    let stack = Stack::with(options).await;
    let session = stack.session().await;
    let (outcome, _) = run(&stack.api, &session, "@tool bash {\"command\":\"echo hi\"}\n@text over").await;
    assert_eq!(outcome, "done");
}

#[tokio::test]
async fn a_stream_starts_without_nats_and_becomes_live_when_nats_returns() {
    if e2e::is_left_out(&["nats"], "it takes NATS away and gives it back") {
        return;
    }
    let url = &testkit::servers().await.nats_url;
    let address = url.split('@').next_back().unwrap().trim_end_matches('/');
    let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
    let nats_url = Some(url.replace(address, &proxy.address.to_string()));
    let stack = Stack::with(Options { nats_url, sandbox: false, ..Options::default() }).await;
    let session = stack.session().await;
    assert_eq!(run(&stack.api, &session, "@text with NATS").await.0, "done");
    proxy.set(Rules { refuses: true, ..Rules::default() });
    proxy.cut(ConnectionEnd::Reset);
    let mut watch = Watch::start(&stack.api, &session).await;
    watch.until_idle().await;
    stack.api.prompt(&session, "@text without NATS").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    assert!(watch.transcript.deltas.is_empty(), "live text comes through NATS only");
    proxy.set(Rules::default());
    testkit::within("text is live again", async {
        while watch.transcript.deltas.is_empty() {
            stack.api.prompt(&session, LONG).await.unwrap();
            watch.until_idle().await;
        }
    })
    .await;
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn a_subscriber_resumes_from_its_cursor_without_gap_or_repetition() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut before = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, LONG).await.unwrap();
    before.until_text().await;
    let (cursor, last_seq) = (before.transcript.cursor.clone(), before.transcript.events.last().unwrap().seq);
    drop(before);
    let mut after = Watch::from(&stack.api, &session, &cursor).await;
    assert_eq!(after.until_idle().await, "done");
    assert_eq!(after.transcript.events[0].seq, last_seq + 1);
    after.transcript.assert_gap_free();
    after.transcript.assert_deltas_agree();
}

#[tokio::test]
async fn a_late_subscriber_receives_the_text_so_far() {
    if e2e::is_left_out(&["nats"], "live text comes through NATS only") {
        return;
    }
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    let mut early = Watch::start(&stack.api, &session).await;
    // The text is long enough that a chunk of it is stored before its end.
    let prompt = format!("@delay 25\n@chunk 64\n@text {}", "0123456789abcdef".repeat(400));
    stack.api.prompt(&session, &prompt).await.unwrap();
    while early.transcript.deltas.values().map(String::len).sum::<usize>() < 4_500 {
        early.next().await;
    }
    let mut late = Watch::start(&stack.api, &session).await;
    late.until_text().await;
    let (part, pieces) = late.transcript.pieces.iter().next().unwrap();
    assert_eq!(pieces[0].0, 0, "{part} from its beginning");
    late.until_idle().await;
    late.transcript.assert_deltas_agree();
}

#[tokio::test]
async fn deleting_a_busy_session_leaves_nothing() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@tool bash {\"command\":\"sleep 60\"}").await.unwrap();
    watch.until_tool("running").await;
    let request = rpc::v1::DeleteSessionRequest { session_id: session.clone() };
    stack.api.sessions().delete_session(request).await.unwrap();
    let request = rpc::v1::GetSessionRequest { session_id: session };
    let gone = stack.api.sessions().get_session(request).await.unwrap_err();
    assert_eq!(e2e::api::code(&gone), "session_not_found");
}

#[tokio::test]
async fn a_turn_survives_a_crash_of_postgres_and_callers_get_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut servers =
        local::stack::start(directory.path(), local::options::Options::default()).await.unwrap();
    let key = gateway::admin::Key::New;
    let bootstrap = gateway::admin::bootstrap(&servers.postgres_url, "crash", key).await.unwrap();
    let urls = DatabaseUrls { app: bootstrap.app_url, system: bootstrap.system_url };
    let options = Options { database_urls: Some(urls), ..Options::default() };
    let stack = Stack::with(options).await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = format!("@tool bash {{\"command\":\"echo x >> ran; cat ran\"}}\n{LONG}");
    stack.api.prompt(&session, &prompt).await.unwrap();
    watch.until_answering().await;
    let cursor = watch.transcript.cursor.clone();
    kill_postgres(&mut servers).await;
    let refused = stack.api.prompt(&session, "@text lost?").await.unwrap_err();
    assert_eq!(
        (refused.code(), e2e::api::code(&refused).as_str()),
        (tonic::Code::Unavailable, "store_unavailable")
    );
    servers.restart("postgres").await.unwrap();
    // The stream may have ended because the store was down; the subscriber resumes.
    let mut watch = Watch::from(&stack.api, &session, &cursor).await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let talk = stack.api.conversation(&session).await;
    let outputs: Vec<_> = talk
        .iter()
        .flat_map(|(_, parts)| parts)
        .filter(|part| part["type"] == "tool")
        .map(|part| part["state"]["output"].clone())
        .collect();
    assert_eq!(outputs, ["x\n"], "the command ran once");
    drop(stack);
    servers.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_waits_for_postgres_to_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut servers =
        local::stack::start(directory.path(), local::options::Options::default()).await.unwrap();
    let bootstrap =
        gateway::admin::bootstrap(&servers.postgres_url, "late", gateway::admin::Key::New).await.unwrap();
    let database_urls = Some(DatabaseUrls { app: bootstrap.app_url, system: bootstrap.system_url });
    let mut stack =
        Stack::with(Options { database_urls, workers: 0, sandbox: false, ..Options::default() }).await;
    let session = stack.session().await;
    kill_postgres(&mut servers).await;
    let api = stack.api.clone();
    let back = async {
        let refused = api.prompt(&session, "@text hello").await.unwrap_err();
        assert_eq!(e2e::api::code(&refused), "store_unavailable");
        servers.restart("postgres").await.unwrap();
    };
    tokio::join!(stack.add_worker(), back);
    let (outcome, _) = run(&stack.api, &session, "@text hello").await;
    assert_eq!(outcome, "done");
    drop(stack);
    servers.stop().await.unwrap();
}

async fn kill_postgres(servers: &mut local::stack::Stack) {
    let (_, pid) = servers.pids().into_iter().find(|(role, _)| *role == "postgres").unwrap();
    signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert_eq!(servers.next_exit().await.role, "postgres");
}
