//! Subtasks of an agent that forks: each works on its own copy of the files, and its parent may take the changes.

use super::only_child;
use e2e::{
    Options, Stack,
    turn::{Watch, bash, output, run, task_for},
};
use rpc::v1;
use serde_json::json;
use std::collections::BTreeSet;

/// The settings of an agent that forks the files.
const FORKS: &str =
    r#"{"agent": {"loner": {"description": "works alone", "mode": "subagent", "files": "fork"}}}"#;

/// Starts the services, with an agent that forks.
async fn start(options: Options) -> Stack {
    let stack = Stack::with(options).await;
    set(&stack, FORKS).await;
    stack
}

/// The same, with a session that has changes.
async fn start_with_changes(options: Options) -> (Stack, String) {
    let stack = start(options).await;
    let session = session_with_changes(&stack).await;
    (stack, session)
}

async fn set(stack: &Stack, document: &str) {
    let (project_id, document) = (stack.api.project_id.clone(), document.to_owned());
    stack.api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await.unwrap();
}

/// A session with a commit, a change and an untracked file.
async fn session_with_changes(stack: &Stack) -> String {
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "one\n")])).await;
    let work = "echo mine >> a.txt; echo untracked > b.txt; echo ignored > c.txt; echo c.txt > .gitignore; cat a.txt";
    assert_eq!(output(&stack.api, &session, work).await.unwrap(), "one\nmine\n");
    session
}

/// Runs a turn that gives this work to a subtask with a copy.
async fn delegate(stack: &Stack, session: &str, work: &str) {
    let prompt = format!("{}\n@text over", task_for("loner", work));
    assert_eq!(run(&stack.api, session, &prompt).await.0, "done");
}

async fn diff(stack: &Stack, session: &str) -> String {
    let request = v1::GetSessionDiffRequest { session_id: session.to_owned(), ..Default::default() };
    stack.api.sessions().get_session_diff(request).await.unwrap().into_inner().patch
}

/// The command that the answer of a subtask names for a patch.
fn apply_command(result: &str) -> String {
    let at = result.find("git apply ").unwrap_or_else(|| panic!("{result}"));
    result[at..].split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn subtasks_with_copies_are_merged_and_the_second_change_of_a_line_is_a_conflict() {
    let (stack, session) = start_with_changes(Options { workers: 2, ..Options::default() }).await;
    let work = |name: &str| {
        let command = format!(
            "cat a.txt b.txt; ls c.txt; git status --short; echo {name} >> a.txt; echo {name} > {name}"
        );
        task_for("loner", &format!("{}\n@text {{{{last_tool_result}}}}", bash(&command)))
    };
    let prompt = format!("@tools\n{}\n{}\n@text both are done", work("first"), work("second"));
    let (outcome, transcript) = run(&stack.api, &session, &prompt).await;
    assert_eq!(outcome, "done");

    let mut calls = stack.api.tool_calls(&session).await.split_off(1);
    calls.sort_by_key(|call| !call.result.contains("- first (+1 -0)"));
    for (call, name) in calls.iter().zip(["first", "second"]) {
        let result = &call.result;
        assert!(result.contains("one\nmine\nuntracked\n"), "uncommitted and untracked files: {result}");
        assert!(result.contains("No such file") && result.contains(" M a.txt\n"), "{result}");
        let listed = format!("It changed 2 files:\n- a.txt (+1 -0)\n- {name} (+1 -0)\n");
        assert!(result.contains(&listed), "{result}");
    }
    calls.sort_by_key(|call| call.result.contains("have conflicts"));
    let [merged, conflict] = [0, 1].map(|index| &calls[index].result);
    assert!(merged.contains("Its changes were merged into your files. It changed 2 files:"), "{merged}");
    assert!(conflict.contains("except those to files with conflicts"), "{conflict}");
    assert!(conflict.contains("as they were in your files:\n- a.txt\nThe patch "), "{conflict}");
    let [winner, loser] =
        if merged.contains("- first (+1 -0)") { ["first", "second"] } else { ["second", "first"] };
    let files = output(&stack.api, &session, "cat a.txt; ls").await.unwrap();
    assert_eq!(files, format!("one\nmine\n{winner}\na.txt\nb.txt\nc.txt\nfirst\nsecond\n"));
    let children = stack.api.children(&session).await;
    assert_eq!(children.len(), 2);
    let copies = transcript.events.iter().filter(|event| event.kind == "worktree.ready");
    let copies: BTreeSet<_> = copies.map(|event| event.properties["name"].as_str().unwrap()).collect();
    assert_eq!(copies, children.iter().map(|child| child.id.as_str()).collect());
    for child in &children {
        let own = diff(&stack, &child.id).await;
        let [first, second] = ["+first", "+second"].map(|line| own.contains(line));
        assert!(first != second && !own.contains("+mine"), "only its own change: {own}");
    }

    let take = format!("{} && cat a.txt", apply_command(conflict));
    let files = output(&stack.api, &session, &take).await.unwrap();
    assert_eq!(files, format!("one\nmine\n<<<<<<< parent\n{winner}\n=======\n{loser}\n>>>>>>> subtask\n"));
    let offered = stack.model.journal.requests()[0].body["tools"].to_string();
    assert!(offered.contains("loner: works alone (works on its own copy of the files)"), "{offered}");
}

#[tokio::test]
async fn a_copy_is_of_its_session_and_those_below_and_is_kept_when_it_is_continued() {
    let (stack, session) = start_with_changes(Options::default()).await;
    // A subtask of the subtask shares its copy, because its agent does not fork.
    let below = task_for("general", &format!("{}\n@text below", bash("echo below >> a.txt")));
    let prompt =
        format!("{}\n@text above", task_for("loner", &format!("{below}\n{}\n@text over", bash("cat a.txt"))));
    assert_eq!(run(&stack.api, &session, &prompt).await.0, "done");
    let child = only_child(&stack, &session).await;
    let grandchild = only_child(&stack, &child).await;
    let calls = stack.api.tool_calls(&child).await;
    assert!(!calls[0].result.contains("its own copy"), "{}", calls[0].result);
    let files_of = async |id: &str| stack.api.get(id).await.workspace_session_id;
    assert_eq!(
        [files_of(&session).await, files_of(&child).await, files_of(&grandchild).await],
        [session.clone(), child.clone(), child.clone()]
    );
    assert_eq!(calls[1].result, "one\nmine\nbelow\n");
    assert!(diff(&stack, &grandchild).await.contains("+below"));
    assert!(diff(&stack, &session).await.contains("+below"), "merged");

    output(&stack.api, &session, "echo later >> a.txt").await.unwrap();
    let again = json!({
        "description": "the same subtask", "prompt": format!("{}\n@text {{{{last_tool_result}}}}", bash("cat a.txt")),
        "subagent_type": "loner", "task_id": child,
    });
    assert_eq!(run(&stack.api, &session, &format!("@tool task {again}\n@text over")).await.0, "done");
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    assert!(result.contains("<task_result>\none\nmine\nbelow\n"), "its own files: {result}");
    let merged = "were merged into your files. That changed no file of yours. In all, it changed 1 file:";
    assert!(result.contains(merged), "{result}");
    let files = output(&stack.api, &session, "cat a.txt").await.unwrap();
    assert_eq!(files, "one\nmine\nbelow\nlater\n", "what was merged before is no conflict");
}

#[tokio::test]
async fn a_subtask_that_takes_its_changes_back_takes_them_from_its_parent_too() {
    let (stack, session) = start_with_changes(Options::default()).await;
    delegate(&stack, &session, &format!("{}\n@text over", bash("echo copy > copy.txt"))).await;
    assert_eq!(output(&stack.api, &session, "cat copy.txt").await.unwrap(), "copy\n");
    let child = only_child(&stack, &session).await;
    let again = json!({
        "description": "the same subtask", "prompt": format!("{}\n@text over", bash("rm copy.txt")),
        "subagent_type": "loner", "task_id": child,
    });
    assert_eq!(run(&stack.api, &session, &format!("@tool task {again}\n@text over")).await.0, "done");
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    let merged = "That changed 1 file of yours. Its copy is as it was at the beginning.";
    assert!(result.contains(merged), "{result}");
    assert_eq!(output(&stack.api, &session, "ls").await.unwrap(), "a.txt\nb.txt\nc.txt\n");
}

#[tokio::test]
async fn a_revert_and_a_deletion_concern_the_right_copy() {
    let (stack, session) = start_with_changes(Options::default()).await;
    let child_work = format!("{}\n@text changed", bash("echo copy >> a.txt"));
    let prompt = format!("{}\n{}\n@text over", bash("echo more >> a.txt"), task_for("loner", &child_work));
    assert_eq!(run(&stack.api, &session, &prompt).await.0, "done");
    let child = only_child(&stack, &session).await;
    let prompts = async |session: &str| {
        let talk = stack.api.conversation(session).await;
        let last = talk.into_iter().map(|(info, _)| info).rfind(|info| info["role"] == "user").unwrap();
        last["id"].as_str().unwrap().to_owned()
    };
    let revert = async |session: &str| {
        let request = v1::RevertSessionRequest {
            session_id: session.to_owned(),
            message_id: prompts(session).await,
            ..Default::default()
        };
        stack.api.sessions().revert_session(request).await.unwrap();
    };
    let merged = diff(&stack, &session).await;
    assert!(merged.contains("+more") && merged.contains("+copy"), "{merged}");
    revert(&session).await;
    let reverted = diff(&stack, &session).await;
    assert!(!reverted.contains("+more") && !reverted.contains("+copy"), "the merge too: {reverted}");
    assert!(diff(&stack, &child).await.contains("+copy"), "the copy stays as it is");
    output(&stack.api, &session, "echo kept >> a.txt").await.unwrap();
    revert(&child).await;
    assert_eq!(diff(&stack, &child).await, "");
    assert!(diff(&stack, &session).await.contains("+kept"));

    let directories = [&session, &child].map(|id| stack.workspace(id));
    assert!(directories.iter().all(|directory| directory.is_dir()), "{directories:?}");
    stack.api.sessions().delete_session(v1::DeleteSessionRequest { session_id: session }).await.unwrap();
    let are_gone = async || !directories.iter().any(|directory| directory.exists());
    testkit::eventually("no files of the tree are left", are_gone).await;
}

/// The writes that wait for the lock of a test.
const WAITING: &str = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
    where l.locktype = 'advisory' and l.objid = 4711 and not l.granted and d.datname = current_database()";

async fn count(stack: &Stack, sql: &'static str) -> i64 {
    let mut owner = stack.database.owner().await;
    sqlx::query_scalar(sql).fetch_one(&mut *owner).await.unwrap()
}

/// Work of a subtask during which a write waits.
struct HeldWork<'a> {
    /// The write: the end of `before insert on`.
    insert: &'a str,
    work: &'a str,
}

/// Gives this work to a subtask. The worker dies while the write waits, and another one ends the turn.
async fn delegate_to_dying_worker(stack: &mut Stack, session: &str, held: HeldWork<'_>) {
    let HeldWork { insert, work } = held;
    let mut sql = testkit::database::connect(&stack.database.migrator_url).await;
    let hold = format!(
        "create function hold() returns trigger language plpgsql as $$
         begin perform pg_advisory_xact_lock(4711); return new; end $$;
         create trigger hold before insert on {insert} execute function hold(); select pg_advisory_lock(4711);"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(hold)).execute(&mut sql).await.unwrap();
    let mut watch = Watch::start(&stack.api, session).await;
    let prompt = format!("{}\n@text over", task_for("loner", work));
    let accepted = stack.api.prompt(session, &prompt).await.unwrap();
    let reader = &*stack;
    testkit::eventually("the write waits", async || count(reader, WAITING).await == 1).await;
    stack.add_worker().await;
    stack.crash_worker(0);
    sqlx::raw_sql("select pg_advisory_unlock(4711)").execute(&mut sql).await.unwrap();
    let idle = watch.until(|event| event.kind == "session.idle" && event.seq > accepted.event_seq).await;
    assert_eq!(idle.properties["outcome"], "done");
    watch.transcript.assert_gap_free();
}

#[tokio::test]
async fn a_worker_that_dies_after_the_copy_leaves_one_subtask() {
    let (mut stack, session) = start_with_changes(Options::default()).await;
    // The row of the child waits, so its copy is stored and it does not exist.
    let held = "session for each row when (new.parent_id is not null)";
    delegate_to_dying_worker(&mut stack, &session, HeldWork { insert: held, work: "@text only one" }).await;
    assert_eq!(stack.api.children(&session).await.len(), 1);
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[1].result.contains("only one"), "{}", calls[1].result);
    let bundles = count(&stack, "select count(*) from bundle where complete").await;
    assert_eq!(bundles, 3, "that of the repository, that of the dead worker, and that of the subtask");
}

#[tokio::test]
async fn a_worker_that_dies_after_a_merge_leaves_one_merge() {
    let (mut stack, session) = start_with_changes(Options::default()).await;
    // The answer of the subtask waits, so its files are merged and the call has not ended.
    let held = "part for each row when (new.data::text like '%<task_files>%')";
    let work = format!("{}\n@text changed", bash("echo copy >> a.txt"));
    delegate_to_dying_worker(&mut stack, &session, HeldWork { insert: held, work: &work }).await;
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    assert!(result.contains("were merged into your files. It changed 1 file:"), "{result}");
    assert_eq!(output(&stack.api, &session, "cat a.txt").await.unwrap(), "one\nmine\ncopy\n");
}

#[tokio::test]
async fn an_abort_ends_a_copy_that_takes_long() {
    let (stack, session) = start_with_changes(Options::default()).await;
    let mut sql = testkit::database::connect(&stack.database.migrator_url).await;
    sqlx::raw_sql("begin; lock table bundle in exclusive mode").execute(&mut sql).await.unwrap();
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = format!("{}\n@text never", task_for("loner", "@text never"));
    let accepted = stack.api.prompt(&session, &prompt).await.unwrap();
    let copying = "select count(*) from pg_locks l join pg_database d on d.oid = l.database join pg_class c on c.oid = l.relation
        where c.relname = 'bundle' and not l.granted and d.datname = current_database()";
    testkit::eventually("the copy is about to be stored", async || count(&stack, copying).await == 1).await;
    assert!(stack.api.abort(&session).await.unwrap());
    let idle = watch.until(|event| event.kind == "session.idle" && event.seq > accepted.event_seq).await;
    assert_eq!(idle.properties["outcome"], "aborted");
    sqlx::raw_sql("rollback").execute(&mut sql).await.unwrap();
    assert_eq!(stack.api.children(&session).await.len(), 0);
}

#[tokio::test]
async fn lost_copies_are_decided_for_themselves() {
    let (mut stack, session) = start_with_changes(Options::default()).await;
    let work = format!("{}\n@text over", bash("echo copy >> a.txt"));
    delegate(&stack, &session, &work).await;
    let child = only_child(&stack, &session).await;
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    for id in [&session, &child] {
        let error = output(&stack.api, id, "cat a.txt").await.unwrap_err();
        assert!(error.contains("workspace_lost"), "{error}");
    }
    let request = v1::RestartWorkspaceRequest { session_id: child.clone() };
    stack.api.sessions().restart_workspace(request).await.unwrap();
    let files = output(&stack.api, &child, "cat a.txt b.txt").await.unwrap();
    assert_eq!(files, "one\nmine\nuntracked\n", "the files that it began with");
    let error = output(&stack.api, &session, "cat a.txt").await.unwrap_err();
    assert!(error.contains("workspace_lost"), "the other files are still lost: {error}");
}

#[tokio::test]
async fn lost_copies_continue_with_what_they_began_with_if_the_project_says_so() {
    let mut stack = start(Options::default()).await;
    set(&stack, &FORKS.replacen('{', r#"{"lost_workspace": "restart", "#, 1)).await;
    let session = session_with_changes(&stack).await;
    let work = format!("{}\n@text over", bash("echo copy >> a.txt"));
    delegate(&stack, &session, &work).await;
    let child = only_child(&stack, &session).await;
    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    let files = output(&stack.api, &child, "cat a.txt b.txt").await.unwrap();
    assert_eq!(files, "one\nmine\nuntracked\n", "without its own changes");
    assert_eq!(output(&stack.api, &session, "cat a.txt").await.unwrap(), "one\n", "its source");
}

#[tokio::test]
async fn a_copy_has_what_an_install_made_and_only_files_of_the_repository_are_merged() {
    let stack = start(Options::default()).await;
    let environment = json!({"install": "mkdir packages; echo kept > packages/id"});
    stack.api.set_environment("", &environment).await;
    let repository = testkit::git::repository(&[("a.txt", "one\n"), (".gitignore", "packages/\n")]);
    let session = stack.session_on(&repository).await;
    let work = bash("cat packages/id; echo changed > packages/id; echo two >> a.txt");
    delegate(&stack, &session, &format!("{work}\n@text {{{{last_tool_result}}}}")).await;
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    assert!(result.contains("<task_result>\nkept\n"), "{result}");
    assert!(result.contains("It changed 1 file:\n- a.txt (+1 -0)\n"), "{result}");
    let files = output(&stack.api, &session, "cat packages/id a.txt").await.unwrap();
    assert_eq!(files, "kept\none\ntwo\n");
}

#[tokio::test]
async fn a_session_without_files_gives_its_source_and_gets_what_changed() {
    let stack = start(Options::default()).await;
    let session = stack.session().await;
    let idle = task_for("loner", "@text nothing to do");
    let work = task_for("loner", &format!("{}\n@text over", bash("echo new > new.txt; pwd > here")));
    assert_eq!(run(&stack.api, &session, &format!("{idle}\n{work}\n@text over")).await.0, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].result.contains("It changed no files."), "{}", calls[0].result);
    assert!(calls[1].result.contains("were merged into your files"), "{}", calls[1].result);
    assert_eq!(output(&stack.api, &session, "cat new.txt here").await.unwrap(), "new\n/workspace\n");
}

#[tokio::test]
async fn the_changes_of_a_subtask_that_failed_stay_in_its_copy() {
    let (stack, session) = start_with_changes(Options::default()).await;
    let work = format!("{}\n@status 400\n@text never", bash("echo half > half.txt"));
    delegate(&stack, &session, &work).await;
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    assert!(result.contains("not done, so nothing was merged. It changed 1 file:\n- half.txt"), "{result}");
    let take = format!("ls half.txt 2>&1 | wc -l; {} && cat half.txt", apply_command(&result));
    assert_eq!(output(&stack.api, &session, &take).await.unwrap(), "1\nhalf\n");
}

#[tokio::test]
async fn the_parent_of_an_aborted_subtask_reads_where_its_changes_are_and_continues_them() {
    let (stack, session) = start_with_changes(Options::default()).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let work = bash("echo half > half.txt; echo begun; sleep 1000");
    let prompt = format!("{}\n@text over", task_for("loner", &format!("{work}\n@text never")));
    let accepted = stack.api.prompt(&session, &prompt).await.unwrap();
    let ready = watch.until(|event| event.kind == "worktree.ready").await;
    let child = ready.properties["name"].as_str().unwrap().to_owned();
    Watch::start(&stack.api, &child).await.until_output("begun").await;
    assert!(stack.api.abort(&child).await.unwrap());
    let idle = watch.until(|event| event.kind == "session.idle" && event.seq > accepted.event_seq).await;
    assert_eq!(idle.properties["outcome"], "done");
    let result = stack.api.tool_calls(&session).await.pop().unwrap().result;
    let told = ["state=\"aborted\"", "nothing was merged. It changed 1 file:\n- half.txt", "git apply /"];
    let named = [format!("task_id {child}"), format!("`flotilla diff {child}`")];
    for part in told.into_iter().chain(named.iter().map(String::as_str)) {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert!(diff(&stack, &child).await.contains("+half"));
    assert_eq!(
        output(&stack.api, &session, "ls half.txt 2>&1 | wc -l; ls").await.unwrap(),
        "1\na.txt\nb.txt\nc.txt\n"
    );

    let again = json!({
        "description": "the same subtask", "prompt": format!("{}\n@text over", bash("echo whole >> half.txt")),
        "subagent_type": "loner", "task_id": child,
    });
    assert_eq!(run(&stack.api, &session, &format!("@tool task {again}\n@text over")).await.0, "done");
    assert_eq!(output(&stack.api, &session, "cat half.txt").await.unwrap(), "half\nwhole\n");
}

#[tokio::test]
async fn a_terminal_of_a_subtask_is_in_its_copy_and_another_word_for_the_files_is_refused() {
    let (stack, session) = start_with_changes(Options::default()).await;
    let work = format!("{}\n@text over", bash("echo copy > copy.txt"));
    delegate(&stack, &session, &work).await;
    let child = only_child(&stack, &session).await;
    let request = v1::CreatePtyRequest {
        session_id: child.clone(),
        command: "/bin/bash".to_owned(),
        args: vec!["-c".to_owned(), "echo person > person.txt".to_owned()],
        ..Default::default()
    };
    stack.api.ptys().create_pty(request).await.unwrap();
    testkit::eventually("the terminal writes", async || diff(&stack, &child).await.contains("+person")).await;
    assert!(!diff(&stack, &session).await.contains("+person"));

    let (project_id, document) = (stack.api.project_id.clone(), FORKS.replace("fork", "own"));
    let refused = stack.api.settings().set_settings(v1::SetSettingsRequest { project_id, document }).await;
    let message = e2e::api::assert_refused(refused, tonic::Code::InvalidArgument, "settings_invalid");
    assert!(
        message.contains("agent.loner.files: expected \"share\" or \"fork\", found \"own\""),
        "{message}"
    );
}
