//! What happens when Postgres is not the one of before: a database that was restored from an older copy.

use e2e::{
    Stack,
    turn::{output, run},
};
use sqlx::AssertSqlSafe;

/// The epoch that the sandbox knows of a session.
fn fence(stack: &Stack, session: &str) -> u64 {
    let tenant = stack.api.tenant_id.replace('-', "");
    let path = stack.sandbox_data().join("fence").join(tenant).join(session);
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Makes the epochs of a session those of an older copy of the database.
async fn put_epoch_back(stack: &Stack, session: &str) {
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    for table in ["session_run", "session_event"] {
        let sql = format!("update {table} set epoch = 1 where session_id = $1");
        sqlx::query(AssertSqlSafe(sql)).bind(session).execute(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn sessions_go_on_although_the_sandbox_knows_a_later_epoch_than_postgres() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("log", "")]);
    // Files of a repository are opened by the turn, and those of an empty session by its first tool call.
    for session in [stack.session_on(&repository).await, stack.session().await] {
        for number in 0..4 {
            output(&stack.api, &session, &format!("echo {number} >> log")).await.unwrap();
        }
        let known = fence(&stack, &session);
        assert!(known >= 4, "{known}");
        put_epoch_back(&stack, &session).await;
        assert_eq!(output(&stack.api, &session, "cat log").await.unwrap(), "0\n1\n2\n3\n");
        let raised = fence(&stack, &session);
        assert!(raised > known, "{raised} after {known}");
        let (outcome, transcript) = run(&stack.api, &session, "@text over").await;
        assert_eq!(outcome, "done");
        assert!(transcript.error().is_none(), "no prompt failed: {:?}", transcript.error());
    }
}
