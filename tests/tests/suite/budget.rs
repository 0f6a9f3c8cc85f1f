//! Budgets: a tree of sessions that spent its budget is parked, and continues after the limit is raised.

use e2e::{
    Stack,
    api::Api,
    turn::{Watch, bash, run, run_on, task},
};
use rpc::v1;

/// A millionth of a dollar: less than any step costs.
const LITTLE: i64 = 1_000_000;
/// A thousand dollars.
const PLENTY: i64 = 1_000_000_000_000_000;

async fn session(api: &Api, budget_usd_picos: i64) -> String {
    let request = v1::CreateSessionRequest {
        project_id: api.project_id.clone(),
        title: "test".to_owned(),
        budget_usd_picos,
        ..Default::default()
    };
    api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id
}

async fn set(api: &Api, session: &str, max_usd_picos: i64) -> v1::Budget {
    let request = v1::SetSessionBudgetRequest { session_id: session.to_owned(), max_usd_picos };
    api.sessions().set_session_budget(request).await.unwrap().into_inner().budget.unwrap()
}

fn waits_for_budget(event: &e2e::turn::Event) -> bool {
    event.kind == "flotilla.session.waiting" && event.properties["reason"] == "budget"
}

#[tokio::test]
async fn a_spent_budget_parks_the_turn_and_a_larger_one_resumes_it() {
    let mut stack = Stack::start().await;
    let session = session(&stack.api, LITTLE).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, &format!("{}\n@text it is done", bash("echo one >> work"))).await.unwrap();
    watch.until(waits_for_budget).await;
    // The tool call of the paid step runs; the next model call does not.
    assert_eq!(stack.api.tool_calls(&session).await[0].status, "completed");
    let patches = |watch: &Watch| {
        watch.transcript.events.iter().filter(|event| event.properties["part"]["type"] == "patch").count()
    };
    assert_eq!(patches(&watch), 1, "no wait begins before the changes of the step are known");
    let waiting = stack.api.get(&session).await;
    assert_eq!((waiting.state(), waiting.waiting_reason.as_str()), (v1::SessionState::Waiting, "budget"));
    let wait = waiting.wait.unwrap();
    assert_eq!((wait.reason.as_str(), wait.max), ("budget", u64::try_from(LITTLE).unwrap()));
    assert!(wait.used >= wait.max && wait.sentence.contains("spent $"), "{wait:?}");

    // The wait outlives the worker, and a limit that is still too small has no effect.
    stack.crash_worker(0);
    stack.add_worker().await;
    let still = set(&stack.api, &session, LITTLE + 1).await;
    assert!(still.spent_usd_picos > still.max_usd_picos, "{still:?}");
    watch.until(waits_for_budget).await;
    set(&stack.api, &session, PLENTY).await;
    assert_eq!(watch.until_idle().await, "done");
    watch.transcript.assert_gap_free();
    assert_eq!(stack.api.tool_calls(&session).await.len(), 1, "the command ran once");
    assert_eq!(patches(&watch), 1, "and changed the files once");
}

/// The test turns the stored times back by more than a week.
#[tokio::test]
async fn a_turn_whose_budget_is_not_raised_in_a_week_ends() {
    let mut stack = Stack::start().await;
    let session = session(&stack.api, LITTLE).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt(&session, "@tool todoread {}\n@text it is done").await.unwrap();
    watch.until(waits_for_budget).await;
    // The next worker reads the conversation from Postgres.
    stack.crash_worker(0);
    for sql in [
        "update message set info = jsonb_set(info::jsonb, '{time,created}', '1000')::json",
        "update message set info = jsonb_set(info::jsonb, '{time,completed}', '1000')::json where role = 'assistant'",
        "update session_run set wake_at = now()",
    ] {
        sqlx::query(sql).execute(&mut *stack.database.owner().await).await.unwrap();
    }
    stack.add_worker().await;
    assert_eq!(watch.until_idle().await, "failed");
    let ended = stack.api.get(&session).await;
    assert!(ended.last_error.contains("The budget is spent"), "{}", ended.last_error);
    let errors = watch.transcript.events.iter().filter(|event| event.kind == "session.error");
    let codes: Vec<_> = errors.map(|event| &event.properties["error"]["data"]["ref"]).collect();
    assert_eq!(codes, ["budget_spent"]);
    // The session takes prompts again once its budget is raised.
    set(&stack.api, &session, PLENTY).await;
    assert_eq!(run(&stack.api, &session, "@text again").await.0, "done");
}

#[tokio::test]
async fn a_subtask_spends_the_budget_of_its_root_and_both_wait_for_more() {
    let stack = Stack::start().await;
    let session = session(&stack.api, LITTLE).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    let prompt = format!("{}\n@text the subtask is done", task("@text done"));
    stack.api.prompt(&session, &prompt).await.unwrap();
    // The child cannot start. Its parent waits for the budget as well, not for its subtasks.
    watch.until(waits_for_budget).await;
    let child = stack.api.children(&session).await.remove(0);
    let request = v1::GetSessionBudgetRequest { session_id: session.clone() };
    let budget = stack.api.sessions().get_session_budget(request).await.unwrap().into_inner().budget.unwrap();
    let own = budget.session_spent_usd_picos;
    assert!(own > 0 && own == budget.spent_usd_picos, "the step that waits counts: {budget:?}");
    // Raising the limit at the child raises it for the tree.
    let budget = set(&stack.api, &child.id, 0).await;
    assert!(budget.max_usd_picos == 0 && budget.spent_usd_picos > 0, "{budget:?}");
    assert_eq!(watch.until_idle().await, "done");
    let calls = stack.api.tool_calls(&session).await;
    assert!(calls[0].result.contains("<task_result>\ndone\n</task_result>"), "{}", calls[0].result);
}

#[tokio::test]
async fn a_budget_is_positive_and_belongs_to_the_callers_tenant() {
    let stack = Stack::gateway_alone().await;
    let session = session(&stack.api, 0).await;
    let request = v1::SetSessionBudgetRequest { session_id: session, max_usd_picos: -1 };
    let refused = stack.api.sessions().set_session_budget(request).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&refused).as_deref(), Some("budget_invalid"));
    let unknown = v1::GetSessionBudgetRequest { session_id: "ses_00000000000000000000000000".to_owned() };
    let refused = stack.api.sessions().get_session_budget(unknown).await.unwrap_err();
    assert_eq!(rpc::status::code_of(&refused).as_deref(), Some("session_not_found"));
}

/// Returns the cost of the tree of a session.
async fn spent(api: &Api, session: &str) -> i64 {
    let request = v1::GetSessionBudgetRequest { session_id: session.to_owned() };
    let budget = api.sessions().get_session_budget(request).await.unwrap().into_inner().budget;
    budget.unwrap().spent_usd_picos
}

#[tokio::test]
async fn deleting_a_subtask_refunds_nothing() {
    let stack = Stack::start().await;
    let session = session(&stack.api, 0).await;
    let prompt = format!("{}\n@text the subtask is done", task("@text done"));
    assert_eq!(run(&stack.api, &session, &prompt).await.0, "done");
    let child = stack.api.children(&session).await.remove(0);
    let before = spent(&stack.api, &session).await;
    assert!(child.cost_usd_picos > 0 && before > child.cost_usd_picos, "{before}");
    let request = v1::DeleteSessionRequest { session_id: child.id };
    stack.api.sessions().delete_session(request).await.unwrap();
    assert_eq!(spent(&stack.api, &session).await, before);
}

#[tokio::test]
async fn an_aborted_call_costs_what_its_provider_reported() {
    let stack = Stack::without_sandbox().await;
    let session = session(&stack.api, 0).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt_on(&session, "claude", "@chunk 4\n@stall 1\n@text never whole").await;
    watch.until_text().await;
    assert!(stack.api.abort(&session).await.unwrap());
    assert_eq!(watch.until_idle().await, "aborted");
    let cost = spent(&stack.api, &session).await;
    assert!(cost > 0, "the provider reported the tokens of the prompt when the answer began");
    assert_eq!(stack.api.get(&session).await.cost_usd_picos, cost);
}

#[tokio::test]
async fn a_failed_attempt_costs_what_its_provider_reported() {
    let stack = Stack::without_sandbox().await;
    let (whole, cut) = (session(&stack.api, 0).await, session(&stack.api, 0).await);
    let script = "@chunk 4\n@text Here it is.";
    assert_eq!(run_on(&stack.api, &whole, "claude", script).await.0, "done");
    assert_eq!(run_on(&stack.api, &cut, "claude", &format!("@cut 2 times=1\n{script}")).await.0, "done");
    let (one, both) = (spent(&stack.api, &whole).await, spent(&stack.api, &cut).await);
    assert!(one > 0 && both > one, "{one} and {both}");
    assert_eq!(stack.api.get(&cut).await.cost_usd_picos, both);
}

#[tokio::test]
async fn a_failed_attempt_that_spends_the_budget_is_the_last_one() {
    let stack = Stack::without_sandbox().await;
    let session = session(&stack.api, LITTLE).await;
    let mut watch = Watch::start(&stack.api, &session).await;
    stack.api.prompt_on(&session, "claude", "@chunk 4\n@cut 2 times=1\n@text Here it is.").await;
    watch.until(waits_for_budget).await;
    assert_eq!(stack.model.journal.requests().len(), 1, "no second attempt");
    set(&stack.api, &session, PLENTY).await;
    assert_eq!(watch.until_idle().await, "done");
}
