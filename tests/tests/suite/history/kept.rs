//! Conversations that a worker keeps between the turns of a session.

use super::run_to_end;
use e2e::{Stack, turn::Watch};

/// Changes what the model said in Postgres, as no service does: the log has no event of it. A service that reads the message sees it.
async fn change_unseen(stack: &Stack, session: &str) {
    let mut owner = stack.database.owner().await;
    let changed = sqlx::query(
        "update part set data = replace(data::text, 'first answer', 'changed answer')::json
          where session_id = $1 and data::text like '%first answer%' and kind = 'text'",
    )
    .bind(session)
    .execute(&mut *owner)
    .await
    .unwrap();
    assert!(changed.rows_affected() > 0);
}

/// The messages of the newest request to the model.
fn newest_request(stack: &Stack) -> String {
    stack.model.journal.requests().pop().unwrap().body["messages"].to_string()
}

#[tokio::test]
async fn the_next_turn_continues_with_what_its_worker_has_kept_and_another_worker_reads_everything() {
    let mut stack = Stack::start().await;
    let session = stack.session().await;
    run_to_end(&stack, &session, "@text first answer").await;
    change_unseen(&stack, &session).await;
    run_to_end(&stack, &session, "@text second").await;
    let kept = newest_request(&stack);
    assert!(kept.contains("first answer") && !kept.contains("changed answer"), "it was read again: {kept}");
    stack.add_worker().await;
    stack.drain_worker(0).await;
    run_to_end(&stack, &session, "@text third").await;
    let read = newest_request(&stack);
    assert!(read.contains("changed answer") && read.contains("second"), "it was not read: {read}");
}

#[tokio::test]
async fn a_conversation_is_not_kept_after_a_turn_in_which_others_wrote() {
    let stack = Stack::start().await;
    let session = stack.session().await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@delay 30\n@chunk 2\n@text The first answer takes a while.").await.unwrap();
    watch.until_answering().await;
    stack.api.prompt(&session, "@text second").await.unwrap();
    assert_eq!(watch.until_idle().await, "done");
    change_unseen(&stack, &session).await;
    run_to_end(&stack, &session, "@text third").await;
    let read = newest_request(&stack);
    assert!(read.contains("changed answer"), "the gateway wrote the second prompt: {read}");
}
