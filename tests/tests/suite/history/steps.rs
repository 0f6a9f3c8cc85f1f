//! The file changes that steps and messages record.

use super::{answers, part, run_to_end, write};
use e2e::{
    Options, Stack,
    turn::{Watch, bash, run_request, task},
};
use rpc::v1::{self, prompt_part::Kind};
use serde_json::{Value, json};

/// Returns the snapshots that a step recorded, at its start and at its end.
fn snapshots(parts: &[Value]) -> (Option<String>, Option<String>) {
    let state = |kind: &str| part(parts, kind)["snapshot"].as_str().map(ToOwned::to_owned);
    // A snapshot that is taken after the start of the step was announced is a part of its own.
    (state("step-start").or_else(|| state("snapshot")), state("step-finish"))
}

/// Asserts that the first of these steps changed these files, that the next one records the state after it, and that its patch comes after its end.
#[track_caller]
fn assert_changed(steps: &[Vec<Value>], files: &[&str]) {
    let [parts, next, ..] = steps else { panic!("another step follows: {steps:?}") };
    let ((begin, own_end), (end, _)) = (snapshots(parts), snapshots(next));
    assert!(begin.is_some() && own_end.is_none() && end.is_some() && begin != end, "{parts:?} {next:?}");
    let patch = part(parts, "patch");
    assert_eq!((patch["hash"].as_str(), &patch["files"]), (begin.as_deref(), &json!(files)));
    let place = |kind: &str| parts.iter().position(|part| part["type"] == kind).unwrap();
    assert!(place("step-finish") < place("patch"));
}

#[track_caller]
fn assert_unchanged(parts: &[Value], state: Option<&str>) {
    assert_eq!(snapshots(parts), (state.map(ToOwned::to_owned), state.map(ToOwned::to_owned)));
    assert_eq!(part(parts, "patch"), Value::Null);
}

#[tokio::test]
async fn each_step_records_snapshots_before_and_after_it() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    run_to_end(&stack, &session, "@text only words").await;
    let prompt =
        format!("{}\n{}\n@text over", write("b.txt", "two\n"), bash("rm a.txt; mkdir d; echo 3 > d/c"));
    let transcript = run_to_end(&stack, &session, &prompt).await;
    let parts =
        transcript.events.iter().map(|event| event.properties["part"]["type"].as_str().unwrap_or_default());
    let parts: Vec<&str> = parts.filter(|kind| ["step-start", "patch"].contains(kind)).collect();
    let want = ["step-start", "step-start", "step-start", "patch", "step-start", "patch"];
    assert_eq!(
        parts, want,
        "a turn of one step, and one of three: no step waits for the snapshot after the step before it"
    );
    let steps = answers(&stack, &session).await;
    // No tool has opened the files yet.
    assert_unchanged(&steps[0], None);
    assert_changed(&steps[1..], &["/workspace/b.txt"]);
    assert_changed(&steps[2..], &["/workspace/a.txt", "/workspace/d/c"]);
    assert_unchanged(&steps[3], snapshots(&steps[3]).0.as_deref());
}

#[tokio::test]
async fn an_event_reports_a_step_without_a_snapshot_and_the_turn_continues() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let kind = "flotilla.snapshot.missed";
    let prompt = format!("{}\n@text over", write("b.txt", "two\n"));
    assert!(!run_to_end(&stack, &session, &prompt).await.kinds().contains(&kind));
    // A file where the directory of snapshots was: no helper can write there.
    let snapshots = stack.workspace(&session).join("snapshots");
    std::fs::remove_dir_all(&snapshots).unwrap();
    std::fs::write(&snapshots, "").unwrap();
    let transcript = run_to_end(&stack, &session, &prompt).await;
    let step = stack.api.conversation(&session).await[4].0["id"].clone();
    let missed: Vec<_> = transcript.events.iter().filter(|event| event.kind == kind).collect();
    assert_eq!(missed.len(), 1, "{:?}", transcript.kinds());
    assert_eq!(missed[0].properties["messageID"], step);
}

#[tokio::test]
async fn an_event_reports_a_step_without_a_first_snapshot_also_if_the_next_step_has_one() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    run_to_end(&stack, &session, &format!("{}\n@text over", write("b.txt", "two\n"))).await;
    let workspace = stack.workspace(&session);
    let (snapshots, kept) = (workspace.join("snapshots"), workspace.join("kept"));
    std::fs::rename(&snapshots, &kept).unwrap();
    std::fs::write(&snapshots, "").unwrap();
    // Otherwise the sandbox knows that the files have not changed since the last snapshot.
    std::fs::write(workspace.join("tree/other"), "").unwrap();
    let mut watch = Watch::start(&stack.api, &session).await;
    let wait = bash("echo begun; until test -e go; do sleep 0.02; done; echo x > made");
    stack.api.prompt(&session, &format!("{wait}\n@text over")).await.unwrap();
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "begun\n").await;
    std::fs::remove_file(&snapshots).unwrap();
    std::fs::rename(&kept, &snapshots).unwrap();
    std::fs::write(workspace.join("tree/go"), "").unwrap();
    assert_eq!(watch.until_idle().await, "done");
    let step = stack.api.conversation(&session).await[4].0["id"].clone();
    let events = watch.transcript.events.iter().filter(|event| event.kind == "flotilla.snapshot.missed");
    let missed: Vec<_> = events.map(|event| &event.properties["messageID"]).collect();
    assert_eq!(missed, [&step]);
}

#[tokio::test]
async fn a_session_without_files_gets_snapshots_after_its_first_writing_tool() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    run_to_end(&stack, &session, "@text only words").await;
    run_to_end(&stack, &session, &format!("@tool todoread {{}}\n{}\n@text over", write("new.txt", "x\n")))
        .await;
    let steps = answers(&stack, &session).await;
    assert_unchanged(&steps[0], None);
    assert_unchanged(&steps[1], None);
    assert_changed(&steps[2..], &["/workspace/new.txt"]);
    assert_unchanged(&steps[3], snapshots(&steps[3]).0.as_deref());
}

#[tokio::test]
async fn changes_of_a_subtask_count_for_its_parent() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let child = format!("{}\n@text done", write("of_child.txt", "x\n"));
    run_to_end(&stack, &session, &format!("{}\n@text over", task(&child))).await;
    let steps = answers(&stack, &session).await;
    assert_changed(&steps, &["/workspace/of_child.txt"]);
    let children = stack.api.children(&session).await;
    assert_changed(&answers(&stack, &children[0].id).await, &["/workspace/of_child.txt"]);
    for id in [&session, &children[0].id] {
        let talk = stack.api.conversation(id).await;
        assert_eq!(talk[0].0["summary"]["diffs"][0]["file"], "of_child.txt");
    }
}

#[tokio::test]
async fn a_step_that_another_worker_finishes_keeps_its_first_snapshot() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = format!("{}\n@text over", bash("echo x > made; echo begun; sleep 9; echo y > later"));
    stack.api.prompt(&session, &prompt).await.unwrap();
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "begun\n").await;
    let before = snapshots(&answers(&stack, &session).await[0])
        .0
        .expect("the snapshot is stored before the command starts");
    stack.add_worker().await;
    stack.crash_worker(0);
    assert_eq!(watch.until_idle().await, "done");
    let steps = answers(&stack, &session).await;
    assert_eq!(snapshots(&steps[0]).0.as_deref(), Some(before.as_str()));
    assert_changed(&steps, &["/workspace/later", "/workspace/made"]);
}

#[tokio::test]
async fn a_snapshot_without_changes_is_stored_with_the_answer() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    // The sandbox gives the snapshot while the model is silent. On a slow machine the end of the step stores it, which is as good.
    let prompt = format!("{}\n@delay 500\n@text over", bash("cat a.txt"));
    run_to_end(&stack, &session, &prompt).await;
    let snapshot = part(&answers(&stack, &session).await[1], "snapshot");
    let sql = "select count(*) from session_event own
                 join session_event other on other.session_id = own.session_id and other.xid = own.xid
                where own.session_id = $1 and own.kind = 'message.part.updated'
                  and own.properties::jsonb #>> '{part,id}' = $2";
    let query = sqlx::query_scalar(sql).bind(&session).bind(snapshot["id"].as_str().unwrap());
    let of_transaction: i64 = query.fetch_one(&mut *stack.database.owner().await).await.unwrap();
    assert!(of_transaction > 1, "the snapshot has a transaction of its own");
}

#[tokio::test]
async fn a_snapshot_without_changes_is_taken_again_if_the_worker_dies_before_the_answer() {
    let mut stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    // The model says nothing in the second step until another worker asks again.
    let prompt = format!("{}\n@stall times=1\n{}\n@text over", bash("cat a.txt"), write("b.txt", "two\n"));
    stack.api.prompt(&session, &prompt).await.unwrap();
    let has_answer = |body: &Value| body.to_string().contains(r#""role":"tool""#);
    testkit::eventually("the second step calls the model", async || {
        stack.model.journal.requests().iter().any(|request| has_answer(&request.body))
    })
    .await;
    stack.crash_worker(0);
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    let steps = answers(&stack, &session).await;
    assert_eq!(snapshots(&steps[0]).0, snapshots(&steps[1]).0);
    assert_changed(&steps[1..], &["/workspace/b.txt"]);
}

#[tokio::test]
async fn an_aborted_turn_records_its_changes() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &bash("echo x > made; echo begun; sleep 60")).await.unwrap();
    watch.until(|event| event.properties["part"]["state"]["metadata"]["output"] == "begun\n").await;
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    let talk = stack.api.conversation(&session).await;
    assert_eq!(part(&talk[1].1, "patch")["files"], json!(["/workspace/made"]));
    assert_eq!(talk[0].0["summary"]["diffs"][0]["additions"], 1);
}

#[tokio::test]
async fn a_turn_without_a_sandbox_only_lacks_snapshots() {
    let mut stack = Stack::with(Options::default()).await;
    let session = stack.session().await;
    run_to_end(&stack, &session, "@tool todoread {}\n@text over").await;
    stack.stop_sandbox().await;
    run_to_end(&stack, &session, "@text without files").await;
    assert_unchanged(answers(&stack, &session).await.last().unwrap(), None);
}

#[tokio::test]
async fn each_step_that_changes_files_shows_the_changes_of_the_session_so_far() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n"), ("c.txt", "c\n")])).await;
    let steps = [write("a.txt", "2\n"), bash("cat a.txt"), write("b.txt", "3\n"), bash("rm c.txt")];
    let transcript = run_to_end(&stack, &session, &format!("{}\n@text over", steps.join("\n"))).await;
    let shown = |event: &e2e::turn::Event| {
        let diffs = event.properties["diff"].as_array().unwrap().iter();
        diffs.map(|diff| diff["file"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let diffs = transcript.events.iter().filter(|event| event.kind == "session.diff");
    let (one, two, all) = (vec!["a.txt"], vec!["a.txt", "b.txt"], vec!["a.txt", "b.txt", "c.txt"]);
    assert_eq!(
        diffs.map(shown).collect::<Vec<_>>(),
        [one, two, all.clone(), all],
        "the last one ends the turn"
    );
    let at = |kind: &str| transcript.events.iter().position(|event| event.kind == kind).unwrap();
    let begins_next = transcript.events.iter().position(|event| {
        event.properties["part"]["state"]["input"]["filePath"]
            .as_str()
            .is_some_and(|path| path.ends_with("b.txt"))
    });
    assert!(at("session.diff") < begins_next.unwrap(), "during the turn");
    let first = &transcript.events[at("session.diff")].properties["diff"][0];
    assert_eq!((&first["additions"], &first["deletions"]), (&json!(1), &json!(1)));
    // A turn that changes nothing shows nothing.
    let log = run_to_end(&stack, &session, &format!("{}\n@text over", bash("cat a.txt"))).await;
    assert_eq!(log.kinds().iter().filter(|kind| **kind == "session.diff").count(), 4);
}

#[tokio::test]
async fn prompts_and_sessions_show_their_changes() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\ntwo\n")])).await;
    let transcript =
        run_to_end(&stack, &session, &format!("{}\n@text over", write("a.txt", "one\n2\n3\n"))).await;
    let kinds = transcript.kinds();
    let end = &kinds[kinds.len() - 5..];
    let want = ["session.updated", "session.diff", "message.updated", "session.status", "session.idle"];
    assert_eq!(end, want);
    let diff = json!([{
        "file": "a.txt", "additions": 2, "deletions": 1, "status": "modified",
        "patch": transcript.events[transcript.events.len() - 4].properties["diff"][0]["patch"],
    }]);
    let patch = diff[0]["patch"].as_str().unwrap();
    assert!(patch.contains("@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n"), "{patch}");
    assert_eq!(transcript.events[transcript.events.len() - 4].properties["diff"], diff);
    // The second turn shows its own change, and the session shows both.
    let binary = bash("printf '\\000\\001' > b.bin; rm a.txt");
    run_to_end(&stack, &session, &format!("{binary}\n@text over")).await;
    run_to_end(&stack, &session, "@text nothing").await;
    let talk = stack.api.conversation(&session).await;
    let prompts: Vec<&Value> =
        talk.iter().map(|(info, _)| info).filter(|info| info["role"] == "user").collect();
    assert_eq!(prompts[0]["summary"]["diffs"], diff);
    let second = prompts[1]["summary"]["diffs"].as_array().unwrap();
    let files: Vec<_> =
        second.iter().map(|it| (&it["file"], &it["status"], &it["additions"], &it["deletions"])).collect();
    let (a, b) = (("a.txt", "deleted", 0, 3), ("b.bin", "added", 0, 0));
    let want =
        [a, b].map(|(file, status, more, less)| (json!(file), json!(status), json!(more), json!(less)));
    assert_eq!(files, want.iter().map(|(a, b, c, d)| (a, b, c, d)).collect::<Vec<_>>());
    assert_eq!(prompts[2]["summary"], Value::Null);
    let summary = stack.api.get(&session).await.summary.unwrap();
    assert_eq!((summary.additions, summary.deletions, summary.files), (0, 2, 2));
    let of = async |message: &Value| {
        let message_id = message["id"].as_str().unwrap().to_owned();
        let request = rpc::v1::GetSessionDiffRequest { session_id: session.clone(), message_id };
        stack.api.sessions().get_session_diff(request).await.unwrap().into_inner()
    };
    let first = of(prompts[0]).await;
    assert_eq!((first.patch.as_str(), first.files.len(), first.files[0].additions), (patch, 1, 2));
    assert_eq!(of(prompts[2]).await, rpc::v1::GetSessionDiffResponse::default());
}

#[tokio::test]
async fn a_repository_can_disable_snapshots() {
    let stack = Stack::start().await;
    let files = [("a.txt", "one\n"), ("opencode.json", r#"{"snapshot": false}"#)];
    let session = stack.session_on(&testkit::git::repository(&files)).await;
    run_to_end(&stack, &session, &format!("{}\n@text over", write("b.txt", "two\n"))).await;
    for step in answers(&stack, &session).await {
        assert_unchanged(&step, None);
    }
    assert_eq!(stack.api.get(&session).await.summary, None);
}

/// The loop does not read the messages before a summary: here they are unreadable.
#[tokio::test]
async fn a_summarised_session_continues_without_its_past() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    run_to_end(&stack, &session, &format!("{}\n@text zebra", write("b.txt", "two\n"))).await;
    let (outcome, _) = run_request(&stack.api, &session, |prompt| {
        prompt.parts.push(Kind::Compaction(v1::CompactionPart {}).into());
    })
    .await;
    assert_eq!(outcome, "done");
    run_to_end(&stack, &session, "@text right after").await;
    let mut postgres = testkit::database::connect(&stack.database.migrator_url).await;
    let spoilt = "update part set data = '{\"type\":\"of a later version\"}' where kind = 'tool'";
    assert_eq!(sqlx::query(spoilt).execute(&mut postgres).await.unwrap().rows_affected(), 1);
    run_to_end(&stack, &session, &format!("{}\n@text after", write("c.txt", "three\n"))).await;
    let messages = stack.model.journal.requests().last().unwrap().body["messages"].to_string();
    assert!(messages.contains("A scripted summary.") && !messages.contains("zebra"), "{messages}");
    let summary = stack.api.get(&session).await.summary.unwrap();
    assert_eq!((summary.additions, summary.files), (2, 2), "changes before the summary count");
}
