//! Scheduling: fair between tenants and classes, visible while sessions wait, and controlled by the operator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use e2e::{
    Options, Stack,
    api::assert_refused,
    turn::{Watch, bash, run, task},
};
use rpc::v1;
use std::time::{Duration, Instant};
use tonic::Code;

#[tokio::test]
async fn a_long_session_yields_its_slot_at_a_step_boundary() {
    if e2e::is_left_out(
        &["redis"],
        "without Redis no session yields its slot, because workers do not know which tenants wait",
    ) {
        return;
    }
    let stack = Stack::with(Options { slots: 1, ..Options::default() }).await;
    let heavy = stack.session().await;
    let mut watch = Watch::start(&stack.api, &heavy).await;
    // Each step runs longer than the charge for a claim, so that the tenant has used more than its share.
    let steps: Vec<String> = (0..4).map(|n| bash(&format!("sleep 2.{n}"))).collect();
    stack.api.prompt(&heavy, &format!("{}\n@text over", steps.join("\n"))).await.unwrap();
    watch.until_tool("running").await;
    let light = stack.other_tenant().await;
    let session = light.session(None).await;
    let begun = Instant::now();
    assert_eq!(run(&light, &session, "@text quick").await.0, "done");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "it waited {:?}, not for the whole turn",
        begun.elapsed()
    );
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let calls = stack.api.tool_calls(&heavy).await;
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| call.status == "completed"), "no step is lost: {calls:?}");
}

#[tokio::test]
async fn a_waiting_session_shows_which_limit_it_waits_for() {
    let mut stack = Stack::with(Options { workers: 0, slots: 1, ..Options::default() }).await;
    let (first, second) = (stack.session().await, stack.session().await);
    stack.api.prompt(&first, &format!("{}\n@text a", bash("sleep 3"))).await.unwrap();
    let wait = stack.api.get(&first).await.wait.unwrap();
    assert_eq!((wait.reason.as_str(), wait.position), ("no_worker", 1));
    let mut watch = Watch::start(&stack.api, &first).await;
    stack.add_worker().await;
    watch.until_tool("running").await;
    stack.api.prompt(&second, "@text b").await.unwrap();
    let wait = stack.api.get(&second).await.wait.unwrap();
    assert_eq!((wait.reason.as_str(), wait.used, wait.max, wait.position), ("worker_slots", 1, 1, 1));
    let limit = v1::UpdateTenantRequest {
        tenant_id: stack.api.tenant_id.clone(),
        running_max: 1,
        weight: 3,
        ..Default::default()
    };
    let tenant = stack.operator().tenants().update_tenant(limit).await.unwrap().into_inner().tenant.unwrap();
    assert_eq!((tenant.running_max, tenant.weight), (1, 3));
    let waiting = v1::ListSessionsRequest { waiting_only: true, ..Default::default() };
    let waiting = stack.api.sessions().list_sessions(waiting).await.unwrap().into_inner().sessions;
    let waits: Vec<_> =
        waiting.iter().map(|session| (&session.id, session.wait.clone().unwrap().reason)).collect();
    assert_eq!(waits, [(&second, "tenant_running".to_owned())]);
    assert_eq!(Watch::start(&stack.api, &second).await.until_idle().await, "done");
    assert_eq!(stack.api.get(&second).await.wait, None);
}

#[tokio::test]
async fn a_session_that_crashes_its_workers_is_quarantined_until_its_release() {
    let mut stack = Stack::gateway_alone().await;
    let (poison, innocent) = (stack.session().await, stack.session().await);
    for session in [&poison, &innocent] {
        stack.api.prompt(session, "@text over").await.unwrap();
    }
    // Simulates five workers that crashed because of the session.
    let mut database = testkit::database::connect(&stack.database.migrator_url).await;
    let blame = sqlx::query("update session_run set attempts = 5 where session_id = $1").bind(&poison);
    blame.execute(&mut database).await.unwrap();
    let mut watch = Watch::start(&stack.api, &poison).await;
    stack.add_worker().await;
    let event = watch.until(|event| event.kind == "flotilla.session.quarantined").await;
    assert!(event.properties["reason"].as_str().unwrap().contains("5 times"), "{event:?}");
    watch.until(|event| event.properties["status"]["type"] == "idle").await;
    assert_eq!(Watch::start(&stack.api, &innocent).await.until_idle().await, "done");
    let wait = stack.api.get(&poison).await.wait.unwrap();
    assert_eq!(wait.reason, "quarantined");
    let listed = v1::ListControlRequest { state: v1::SessionState::Quarantined.into(), page: None };
    let listed = stack.operator().admin().list_control(listed).await.unwrap().into_inner().sessions;
    assert_eq!((listed.len(), listed[0].session_id.as_str(), listed[0].attempts), (1, poison.as_str(), 5));

    let release = |id: &str| v1::ReleaseSessionRequest { session_id: id.to_owned(), ..Default::default() };
    assert_refused(
        stack.operator().admin().release_session(release(&innocent)).await,
        Code::FailedPrecondition,
        "not_quarantined",
    );
    stack.operator().admin().release_session(release(&poison)).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn an_operator_can_list_and_kill_running_sessions() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{}\n@text over", bash("echo on; sleep 100"))).await.unwrap();
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "on\n").await;
    let (operator, page) = (stack.operator(), None);
    let lines = operator.admin().list_queue(v1::ListQueueRequest { page }).await.unwrap().into_inner().lines;
    assert_eq!((lines.len(), lines[0].tenant_name.as_str(), lines[0].running), (1, "acme", 1));
    let workers =
        operator.admin().list_workers(v1::ListWorkersRequest::default()).await.unwrap().into_inner().workers;
    assert_eq!((workers.len(), workers[0].name.as_str(), workers[0].running), (1, "worker-1", 1));
    assert!(workers[0].lease_ms > 0 && workers[0].slots == 16);
    let running = v1::ListControlRequest { state: v1::SessionState::Running.into(), page: None };
    let running = operator.admin().list_control(running).await.unwrap().into_inner().sessions;
    assert_eq!((running[0].owner.as_str(), running[0].epoch), ("worker-1", 1));
    assert!(running[0].owned_at_ms > 0);
    assert_refused(
        stack.api.admin().list_queue(v1::ListQueueRequest::default()).await,
        Code::PermissionDenied,
        "operator_only",
    );

    let kill = v1::KillSessionRequest {
        session_id: session.clone(),
        reason: "runs amok".to_owned(),
        ..Default::default()
    };
    operator.admin().kill_session(kill).await.unwrap();
    let event = watch.until(|event| event.kind == "flotilla.session.quarantined").await;
    assert_eq!(event.properties["reason"], "an operator stopped it: runs amok");
    let state = stack.api.get(&session).await;
    assert_eq!((state.state(), state.epoch), (v1::SessionState::Quarantined, 2));
    let release = v1::ReleaseSessionRequest { session_id: session.clone(), ..Default::default() };
    operator.admin().release_session(release).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let call = &stack.api.tool_calls(&session).await[0];
    assert!(call.status != "completed" || !call.result.is_empty(), "the command was ended: {call:?}");
}

#[tokio::test]
async fn a_drained_worker_hands_its_commands_over_and_takes_no_sessions() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let command = bash("echo ran >> count; echo on; sleep 8; cat count");
    stack.api.prompt(&session, &format!("{command}\n@text over")).await.unwrap();
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "on\n").await;
    stack.add_worker().await;
    assert_eq!(
        stack.operator().admin().drain_worker(drain("worker-1", false)).await.unwrap().into_inner().asked,
        1
    );
    let started = watch.until(|event| event.kind == "flotilla.loop.started").await;
    assert_eq!(started.properties["worker"], "worker-2", "while the command runs");
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(stack.api.tool_calls(&session).await[0].result, "on\nran\n", "it ran once");
    for _ in 0..3 {
        let (_, transcript) = run(&stack.api, &session, "@text more").await;
        let started = transcript.events.iter().rfind(|event| event.kind == "flotilla.loop.started").unwrap();
        assert_eq!(started.properties["worker"], "worker-2");
    }
    assert_refused(
        stack.operator().admin().drain_worker(drain("worker-9", false)).await,
        Code::NotFound,
        "worker_not_found",
    );
}

fn drain(worker: &str, undo: bool) -> v1::DrainWorkerRequest {
    v1::DrainWorkerRequest { worker: worker.to_owned(), undo }
}

#[tokio::test]
async fn a_drained_worker_closes_aborted_sessions_and_resumes_after_the_drain() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    stack.operator().admin().drain_worker(drain("worker-1", false)).await.unwrap();
    let is_draining = async || {
        let workers = stack.operator().admin().list_workers(v1::ListWorkersRequest::default()).await;
        workers.unwrap().into_inner().workers[0].draining
    };
    testkit::eventually("the worker hands over", is_draining).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@text never").await.unwrap();
    let wait = stack.api.get(&session).await.wait.unwrap();
    assert_eq!((wait.reason.as_str(), wait.eta_ms), ("no_worker", 0), "there is no estimate");
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted", "an abort does not wait");

    stack.api.prompt(&session, "@text at last").await.unwrap();
    assert_eq!(stack.api.get(&session).await.state(), v1::SessionState::Queued);
    stack.operator().admin().drain_worker(drain("worker-1", true)).await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    testkit::eventually("it says so", async || !is_draining().await).await;
}

/// Creates a session that waits for its child, which runs a command. Returns both, and the watch of the first.
async fn parent_of_a_busy_child(stack: &Stack) -> (String, Watch, String) {
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let below = task(&format!("{}\n@text never", bash("sleep 100")));
    stack.api.prompt(&session, &format!("{below}\n@text over")).await.unwrap();
    watch.until(|event| event.kind == "flotilla.session.waiting").await;
    let child = stack.api.children(&session).await.remove(0).id;
    (session, watch, child)
}

#[tokio::test]
async fn a_killed_session_kills_its_subtasks_and_refuses_prompts_until_its_release() {
    let stack = Stack::start().await;
    let operator = stack.operator();
    let (session, mut watch, child) = parent_of_a_busy_child(&stack).await;
    let kill = || v1::KillSessionRequest { session_id: session.clone(), ..Default::default() };
    let killed = operator.admin().kill_session(kill()).await.unwrap().into_inner();
    assert_eq!(killed.subtasks, 1);
    assert_eq!(Watch::start(&stack.api, &child).await.until_idle().await, "aborted");
    assert_refused(operator.admin().kill_session(kill()).await, Code::FailedPrecondition, "not_active");
    let prompt = stack.api.prompt(&session, "@text more").await;
    assert_refused(prompt, Code::FailedPrecondition, "session_quarantined");
    assert_refused(stack.api.abort(&session).await, Code::FailedPrecondition, "session_quarantined");
    let release = v1::ReleaseSessionRequest { session_id: session.clone(), ..Default::default() };
    operator.admin().release_session(release).await.unwrap();
    assert_eq!(watch.until_idle().await, "done", "the call has the answer of its subtask");
    assert!(stack.api.tool_calls(&session).await[0].result.contains("state=\"aborted\""));
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn a_killed_or_deleted_session_frees_its_slot_while_the_model_is_silent() {
    let stack = Stack::with(Options { slots: 1, ..Options::default() }).await;
    let (killed, deleted) = (stack.session().await, stack.session().await);
    for session in [&killed, &deleted] {
        let mut watch = Watch::start(&stack.api, session).await;
        stack.api.prompt(session, "@stall\n@text never").await.unwrap();
        watch.until(|event| event.properties["part"]["type"] == "step-start").await;
        if session == &killed {
            let kill = v1::KillSessionRequest { session_id: session.clone(), ..Default::default() };
            stack.operator().admin().kill_session(kill).await.unwrap();
        } else {
            let delete = v1::DeleteSessionRequest { session_id: session.clone() };
            stack.api.sessions().delete_session(delete).await.unwrap();
        }
        let other = stack.session().await;
        assert_eq!(
            run(&stack.api, &other, "@text next").await.0,
            "done",
            "long before the timeout of the model"
        );
    }
}

/// Clients choose the ids of sessions.
#[tokio::test]
async fn sessions_of_two_tenants_with_one_id_do_not_disturb_each_other() {
    let stack = Stack::start().await;
    let (other, operator, id) = (stack.other_tenant().await, stack.operator(), stack.session().await);
    let (project_id, same) = (other.project_id.clone(), id.clone());
    let request = v1::CreateSessionRequest { project_id, id: same, ..Default::default() };
    other.sessions().create_session(request).await.unwrap();
    let mut watch = Watch::start(&other, &id).await;
    other.prompt(&id, "@stall\n@text never").await.unwrap();
    watch.until(|event| event.properties["part"]["type"] == "step-start").await;
    assert_eq!(run(&stack.api, &id, "@text own").await.0, "done", "while the other one runs");

    let kill = |tenant: &str| v1::KillSessionRequest {
        session_id: id.clone(),
        tenant_id: tenant.to_owned(),
        ..Default::default()
    };
    let refused = operator.admin().kill_session(kill("")).await;
    let message = assert_refused(refused, Code::InvalidArgument, "session_ambiguous");
    let tenants = format!("acme ({}), umbrella ({})", stack.api.tenant_id, other.tenant_id);
    assert!(message.contains(&tenants), "{message}");
    let nobody = "00000000-0000-0000-0000-000000000000";
    let refused = operator.admin().kill_session(kill(nobody)).await;
    assert_refused(refused, Code::NotFound, "session_not_found");
    operator.admin().kill_session(kill(&other.tenant_id)).await.unwrap();
    watch.until(|event| event.kind == "flotilla.session.quarantined").await;
    e2e::turn::assert_works(&stack.api, &id).await;
    let release =
        |tenant: &str| v1::ReleaseSessionRequest { session_id: id.clone(), tenant_id: tenant.to_owned() };
    let refused = operator.admin().release_session(release("")).await;
    assert_refused(refused, Code::InvalidArgument, "session_ambiguous");
    operator.admin().release_session(release(&other.tenant_id)).await.unwrap();
}

#[tokio::test]
async fn deleting_a_quarantined_session_ends_its_subtasks() {
    let stack = Stack::start().await;
    let operator = stack.operator();
    let (session, _watch, child) = parent_of_a_busy_child(&stack).await;
    let kill = v1::KillSessionRequest { session_id: session.clone(), ..Default::default() };
    operator.admin().kill_session(kill).await.unwrap();
    assert_refused(stack.api.abort(&session).await, Code::FailedPrecondition, "session_quarantined");
    let delete = || v1::DeleteSessionRequest { session_id: session.clone() };
    stack.api.sessions().delete_session(delete()).await.unwrap();
    assert_refused(stack.api.sessions().delete_session(delete()).await, Code::NotFound, "session_not_found");
    for id in [session.clone(), child] {
        let got = v1::GetSessionRequest { session_id: id };
        assert_refused(stack.api.sessions().get_session(got).await, Code::NotFound, "session_not_found");
    }
    // Its worker can run other sessions.
    let other = stack.session().await;
    assert_eq!(run(&stack.api, &other, "@text over").await.0, "done");
}

#[tokio::test]
async fn a_session_of_a_newer_version_waits_for_a_newer_worker() {
    let stack = Stack::without_sandbox().await;
    let session = stack.session().await;
    assert_eq!(run(&stack.api, &session, "@text first").await.0, "done");
    let mut database = testkit::database::connect(&stack.database.migrator_url).await;
    let newer = "update part set data = jsonb_set(data::jsonb, '{type}', '\"hologram\"')::json
                  where session_id = $1 and kind = 'step-start'";
    sqlx::query(newer).bind(&session).execute(&mut database).await.unwrap();
    stack.api.prompt(&session, "@text second").await.unwrap();
    testkit::eventually("the worker refuses it", async || {
        let wait = stack.api.get(&session).await.wait;
        wait.is_some_and(|wait| wait.reason == "newer_worker" && wait.sentence.contains("hologram"))
    })
    .await;
    // Simulates a newer worker, which could read it.
    let back = "update part set data = jsonb_set(data::jsonb, '{type}', '\"step-start\"')::json where session_id = $1
                  and kind = 'step-start'";
    sqlx::query(back).bind(&session).execute(&mut database).await.unwrap();
    let mut watch = Watch::start(&stack.api, &session).await;
    watch.until_idle().await;
    assert_eq!(watch.until_idle().await, "done");
    assert_eq!(stack.api.get(&session).await.wait, None);
}

#[tokio::test]
async fn a_long_back_off_holds_no_slot() {
    let stack = Stack::with(Options { slots: 1, sandbox: false, ..Options::default() }).await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@status 429 retry-after=4 times=1\n@text at last").await.unwrap();
    let waiting = watch.until(|event| event.kind == "flotilla.session.waiting").await;
    assert_eq!(waiting.properties["reason"], "back_off");
    let other = stack.session().await;
    assert_eq!(run(&stack.api, &other, "@text meanwhile").await.0, "done");
    assert_eq!(stack.api.get(&session).await.wait.unwrap().reason, "back_off");
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let retries =
        watch.transcript.events.iter().filter(|event| event.properties["status"]["type"] == "retry").count();
    assert_eq!(retries, 1);
}
