//! What happens when Postgres or the sandbox service is not the one of before: a database that was restored from an older copy, another data directory, and a token
//! that the sandbox does not know.

use e2e::{
    Stack,
    api::assert_refused,
    turn::{assert_works, output, run},
};
use rpc::v1;
use sqlx::AssertSqlSafe;
use tonic::Code;

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

/// The id of the data directory of the sandbox service.
fn sandbox_id(stack: &Stack) -> String {
    std::fs::read_to_string(stack.sandbox_data().join("id")).unwrap()
}

#[tokio::test]
async fn a_gateway_with_another_sandbox_does_not_start_until_it_replaces_the_first() {
    let mut stack = Stack::start().await;
    let known = sandbox_id(&stack);
    stack.stop_sandbox().await;
    stack.start_sandbox().await;
    assert_eq!(sandbox_id(&stack), known, "a restart keeps it");
    drop(stack.try_gateway(|_| {}).await.unwrap());

    stack.stop_sandbox().await;
    stack.lose_sandbox_files();
    stack.start_sandbox().await;
    let found = sandbox_id(&stack);
    assert_ne!(found, known);
    let start = async |replaces: &str| {
        let replaces = ["--sandbox-replaces".to_owned(), replaces.to_owned()];
        stack.try_gateway(|arguments| arguments.extend(replaces)).await.map(drop)
    };
    // The new one is none that it could replace.
    for refused in [stack.try_gateway(|_| {}).await.map(drop), start(&found).await] {
        let refused = refused.unwrap_err().to_string();
        for part in [&found, &known, &format!("FLOTILLA_SANDBOX_REPLACES={known}")] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
    start(&known).await.unwrap();
    start(&known).await.unwrap();
    stack.add_worker().await;
    assert_works(&stack.api, &stack.session().await).await;
}

#[tokio::test]
async fn a_token_that_the_sandbox_refuses_is_no_mistake_of_a_tenant() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    output(&stack.api, &session, "echo work > file").await.unwrap();
    let wrong = |arguments: &mut Vec<String>| {
        let at = arguments.iter().position(|argument| argument == "--sandbox-token").unwrap();
        arguments[at + 1] = "a token that the sandbox lacks".to_owned();
    };
    let gateway = stack.try_gateway(wrong).await.unwrap();
    let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
    let diff = stack.api.at(&gateway.url).sessions().get_session_diff(request).await;
    let message = assert_refused(diff, Code::Unavailable, "sandbox_unavailable");
    assert!(!message.contains("token"), "{message}");
}
