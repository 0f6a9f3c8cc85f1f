//! What a commit of a private repository has for agents: read once, while sessions have no files.

use super::{Testbed, URL, session};
use crate::guidance::{run_to_end, systems};
use e2e::turn::{bash, output, run};
use futures::future::join_all;
use testkit::git::Repository;

/// Commits instructions, and pushes them.
fn push(testbed: &Testbed, text: &str) {
    let app: &Repository = &testbed.app;
    std::fs::write(app.path().join("AGENTS.md"), text).unwrap();
    app.git(&["add", "AGENTS.md"]);
    app.git(&["commit", "--quiet", "--message=instructions"]);
    testbed.server.push("acme/app.git", app);
}

/// Lets the time pass in which a branch is taken to name the same commit.
async fn let_commits_age(testbed: &Testbed) {
    let mut owner = testbed.stack.database.owner().await;
    sqlx::raw_sql("update source_commit set seen_at = seen_at - interval '1 hour'")
        .execute(&mut *owner)
        .await
        .unwrap();
}

async fn say(testbed: &Testbed, session: &str) {
    run_to_end(&testbed.stack, session, "@text hello").await;
}

#[tokio::test]
async fn sessions_of_a_branch_ask_the_server_for_its_commit_and_read_each_commit_once() {
    let testbed = Testbed::start().await;
    push(&testbed, "Be brief.\n");
    let api = &testbed.stack.api;
    // Those that begin together read it once.
    let together = join_all((0..8).map(|_| testbed.session())).await;
    let before = testbed.server.requests().len();
    join_all(together.iter().map(|session| say(&testbed, session))).await;
    assert_eq!(testbed.transfers_since(before), 1);
    let lone = testbed.session().await;
    let_commits_age(&testbed).await;
    let before = testbed.server.requests().len();
    say(&testbed, &lone).await;
    assert_eq!(testbed.transfers_since(before), 0, "it asks for the commit alone");
    for session in together.iter().chain([&lone]) {
        assert!(systems(&testbed.stack, session)[0].contains("Be brief."));
        assert!(!testbed.stack.workspace(session).join("tree").exists());
    }

    push(&testbed, "Be thorough.\n");
    let_commits_age(&testbed).await;
    let next = session(api, URL).await;
    say(&testbed, &next).await;
    assert!(systems(&testbed.stack, &next)[0].contains("Be thorough."));
    assert_eq!(output(api, &next, "cat file").await.unwrap(), "private\n");
}

#[tokio::test]
async fn files_of_a_newer_commit_guide_the_rest_of_the_turn() {
    let testbed = Testbed::start().await;
    push(&testbed, "Be brief.\n");
    // The session that reads the commit would open it. Another one opens what the branch names by then.
    say(&testbed, &testbed.session().await).await;
    let (api, session) = (&testbed.stack.api, testbed.session().await);
    say(&testbed, &session).await;
    push(&testbed, "Be thorough.\n");
    let (outcome, _) = run(api, &session, &format!("{}\n@text read", bash("cat AGENTS.md"))).await;
    assert_eq!(outcome, "done");
    assert_eq!(api.tool_calls(&session).await.pop().unwrap().result, "Be thorough.\n");
    let systems = systems(&testbed.stack, &session);
    let said: Vec<bool> = systems.iter().map(|system| system.contains("Be thorough.")).collect();
    assert_eq!(said, [false, false, true], "{systems:?}");
}
