use super::*;
use crate::{
    ids::MessageId,
    limits::MODEL_RETRIES_MAX,
    turn::{outcome::outcome_of, view::LastStep},
};

const NOW: Timestamp = Timestamp(1_000);

fn user(n: u8) -> MessageId {
    format!("msg_user{n}").parse().expect("an id")
}

fn step(parent: u8) -> LastStep {
    LastStep {
        parent: user(parent),
        answered: true,
        closed: true,
        continues: false,
        rejected: false,
        is_summary: false,
        overflowed: false,
        failed: None,
        open: vec![],
        retries: 0,
    }
}

fn view(newest: u8, last: Option<LastStep>) -> View {
    View { newest_user: Some(user(newest)), last, ..View::default() }
}

/// Applies a signal, and gets everything that the turn then waits for.
fn driven(state: &mut State, signal: Signal) -> Vec<Action> {
    let mut all = vec![];
    let mut actions = state.apply(signal, NOW, 0.0);
    loop {
        let fetched = actions.pop_if(|action| matches!(action, Action::Fetch(..)));
        all.append(&mut actions);
        let Some(Action::Fetch(need, _)) = fetched else { return all };
        assert_eq!(state.missing(), Some(need));
        actions = state.apply(Signal::Ready(need), NOW, 0.0);
    }
}

fn decided(view: View) -> Vec<Action> {
    driven(&mut State::Looking, Signal::Looked(view))
}

/// A step of the model, after failed attempts.
fn model_step(failed: u32) -> Vec<Action> {
    vec![Action::BeginStep { failed }, Action::Call]
}

fn calls(ids: &[&str]) -> Vec<CallId> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn runs(ids: &[&str]) -> Vec<Action> {
    vec![Action::Announce, Action::Run(calls(ids))]
}

fn failure(retryable: bool, retry_after_ms: Option<u64>) -> Signal {
    Signal::Failed(ModelFailure { error: Error::new("APIError", "overloaded"), retryable, retry_after_ms })
}

#[test]
fn a_look_decides_the_next_action() {
    let call = model_step(0);
    let cases = [
        ("nothing was asked", View::default(), vec![Action::Park(ParkReason::Idle(Outcome::Done))]),
        ("a fresh prompt", view(1, None), call.clone()),
        ("answered", view(1, Some(step(1))), vec![Action::Park(ParkReason::Idle(Outcome::Done))]),
        ("a newer prompt than the answer", view(2, Some(step(1))), call.clone()),
        (
            "the model wants another step",
            view(1, Some(LastStep { continues: true, ..step(1) })),
            call.clone(),
        ),
        (
            "a dead worker's open call",
            view(1, Some(LastStep { closed: false, open: vec!["c".into()], ..step(1) })),
            runs(&["c"]),
        ),
        (
            "a dead worker's unclosed step",
            view(1, Some(LastStep { closed: false, ..step(1) })),
            vec![Action::Finish, Action::Look],
        ),
        (
            "a dead worker's half answer",
            view(1, Some(LastStep { answered: false, closed: false, ..step(1) })),
            call.clone(),
        ),
        (
            "a failed step",
            view(1, Some(LastStep { failed: Some(Outcome::Failed), ..step(1) })),
            vec![Action::Park(ParkReason::Idle(Outcome::Failed))],
        ),
        (
            "a prompt after a failed step",
            view(2, Some(LastStep { failed: Some(Outcome::Failed), ..step(1) })),
            call,
        ),
        ("an abort", View { aborted: true, ..view(1, None) }, vec![Action::Stop(Stop::Abort)]),
        ("a drain", View { leaving: true, ..view(1, None) }, vec![Action::HandOver]),
        (
            "a drain with a call that is open",
            View {
                leaving: true,
                ..view(1, Some(LastStep { closed: false, open: vec!["c".into()], ..step(1) }))
            },
            vec![Action::HandOver],
        ),
        (
            "a drain at the end of the turn",
            View { leaving: true, ..view(1, Some(step(1))) },
            vec![Action::Park(ParkReason::Idle(Outcome::Done))],
        ),
        (
            "two attempts failed before the wait",
            view(1, Some(LastStep { answered: false, closed: false, retries: 2, ..step(1) })),
            model_step(2),
        ),
        (
            "a new prompt begins anew after failed attempts",
            view(2, Some(LastStep { answered: false, closed: false, retries: 2, ..step(1) })),
            model_step(0),
        ),
    ];
    for (what, view, want) in cases {
        assert_eq!(decided(view), want, "{what}");
    }
}

#[test]
fn a_full_context_is_summed_up_once() {
    let full = |last, steps| View { is_full: true, steps_since_summary: steps, ..view(1, Some(last)) };
    let (over, again) = (step(1), LastStep { continues: true, ..step(1) });
    let compact = vec![Action::Compact { overflow: false }, Action::Look];
    let park = vec![Action::Park(ParkReason::Idle(Outcome::Done))];
    let call = model_step(0);
    let overflowed = LastStep { failed: Some(Outcome::Failed), overflowed: true, ..step(1) };
    let summary = LastStep { is_summary: true, continues: true, ..step(1) };
    let due = |view| View { due: Due::Summary, ..view };
    let failed = vec![Action::Park(ParkReason::Idle(Outcome::Failed))];
    for (what, view, want) in [
        ("between two steps", full(again.clone(), None), compact.clone()),
        ("after the answer", full(over.clone(), Some(2)), compact.clone()),
        ("a full step right after a summary", full(again.clone(), Some(1)), call.clone()),
        ("a full answer right after a summary", full(over.clone(), Some(1)), park.clone()),
        ("an answer without money", View { out_of_budget: true, ..full(over, None) }, park.clone()),
        (
            "a refused prompt",
            view(1, Some(overflowed.clone())),
            vec![Action::Compact { overflow: true }, Action::Look],
        ),
        (
            "a prompt that is refused again",
            View { steps_since_summary: Some(0), ..view(1, Some(overflowed.clone())) },
            failed.clone(),
        ),
        ("a refused summary", view(1, Some(LastStep { is_summary: true, ..overflowed.clone() })), failed),
        (
            "a prompt after a refused summary",
            View { is_full: true, ..view(2, Some(LastStep { is_summary: true, ..overflowed })) },
            compact.clone(),
        ),
        (
            "an asked summary of a new prompt",
            due(view(2, Some(step(1)))),
            vec![Action::Summarize { failed: 0 }],
        ),
        (
            "an attempt at it failed",
            due(view(
                2,
                Some(LastStep { answered: false, closed: false, is_summary: true, retries: 1, ..step(2) }),
            )),
            vec![Action::Summarize { failed: 1 }],
        ),
        ("a summary", view(1, Some(summary.clone())), vec![Action::Resume, Action::Look]),
        ("a summary and a newer prompt", view(2, Some(summary.clone())), call),
        ("a summary that a person asked for", view(1, Some(LastStep { continues: false, ..summary })), park),
        (
            "tasks",
            View { due: Due::Calls, is_full: true, ..view(2, Some(step(1))) },
            vec![Action::BeginCalls, Action::Look],
        ),
    ] {
        assert_eq!(decided(view), want, "{what}");
    }
}

#[test]
fn an_endless_turn_needs_a_person() {
    let again = Some(LastStep { continues: true, ..step(1) });
    let actions = decided(View { steps: STEPS_PER_TURN_MAX, ..view(1, again) });
    assert!(
        matches!(&actions[..], [Action::Close(error), Action::Look] if outcome_of(error) == Outcome::NeedsHuman),
        "{actions:?}"
    );
}

#[test]
fn whether_a_model_may_repeat_itself_is_found_out_before_it_is_asked_again() {
    let again = || Some(LastStep { continues: true, ..step(1) });
    let loops = |view| View { repeated_calls: DOOM_LOOP_CALLS, ..view };
    for (what, view, doubts) in [
        ("three calls", loops(view(1, again())), true),
        ("two calls", View { repeated_calls: DOOM_LOOP_CALLS - 1, ..view(1, again()) }, false),
        ("a full context", View { is_full: true, ..loops(view(1, again())) }, true),
        ("no budget", View { out_of_budget: true, ..loops(view(1, again())) }, true),
        ("a worker that ends", View { leaving: true, ..loops(view(1, again())) }, true),
        ("a turn that is over", loops(view(1, Some(step(1)))), false),
        ("a refusal", loops(view(1, Some(LastStep { rejected: true, continues: true, ..step(1) }))), false),
        ("an abort", View { aborted: true, ..loops(view(1, again())) }, false),
    ] {
        assert_eq!(decided(view) == [Action::Doubt], doubts, "{what}");
    }
    let wait = Wait { reason: Reason::Permission, until: Some(NOW) };
    for (signal, want) in [
        (Signal::Doubted(None), vec![Action::Look]),
        (Signal::Doubted(Some(wait)), vec![Action::Park(ParkReason::Wait(wait))]),
        (Signal::Broken(Error::new("x", "y")), vec![Action::Close(Error::new("x", "y")), Action::Look]),
        (Signal::PauseEnded, vec![]),
    ] {
        assert_eq!(State::Doubting.apply(signal.clone(), NOW, 0.0), want, "{signal:?}");
    }
}

#[test]
fn tools_run_and_then_the_loop_looks_again() {
    let mut state = State::Calling { failed: 0 };
    assert_eq!(driven(&mut state, Signal::Answered(calls(&["a", "b"]))), runs(&["a", "b"]));
    assert_eq!(state.apply(Signal::ended("b".into()), NOW, 0.0), vec![]);
    assert_eq!(state.apply(Signal::ended("b".into()), NOW, 0.0), vec![], "a repeated end is nothing");
    assert_eq!(state.apply(Signal::ended("a".into()), NOW, 0.0), vec![Action::Finish, Action::Look]);
    assert_eq!(state, State::Looking);
}

#[test]
fn retries_back_off_and_end() {
    let back_off = |attempt, wait| Action::BackOff {
        attempt,
        until: Timestamp(NOW.0 + wait),
        error: Error::new("APIError", "overloaded"),
    };
    let mut state = State::Calling { failed: 0 };
    assert_eq!(state.apply(failure(true, None), NOW, 0.0), vec![back_off(1, 2_000)], "keeps its slot");
    assert_eq!(state.apply(Signal::PauseEnded, NOW, 0.0), vec![Action::Look], "the budget may be used up");
    let retried = LastStep { answered: false, closed: false, retries: 1, ..step(1) };
    let spent = View { out_of_budget: true, ..view(1, Some(retried.clone())) };
    let wait = Wait { reason: Reason::Budget, until: Some(Timestamp(BUDGET_WAIT_MS)) };
    for (view, want) in
        [(view(1, Some(retried)), model_step(1)), (spent, vec![Action::Park(ParkReason::Wait(wait))])]
    {
        assert_eq!(driven(&mut state.clone(), Signal::Looked(view)), want);
    }
    for (failed, wait) in [(1, 4_000), (2, 8_000), (3, 16_000), (4, 30_000)] {
        let mut state = State::Calling { failed };
        let until = Some(Timestamp(NOW.0 + wait));
        let parks = Action::Park(ParkReason::Wait(Wait { reason: Reason::BackOff, until }));
        assert_eq!(state.apply(failure(true, None), NOW, 0.0), vec![back_off(failed + 1, wait), parks]);
        assert_eq!(state.apply(Signal::Parked, NOW, 0.0), vec![]);
        assert_eq!(state, State::Ended, "another loop continues");
    }
    let last = State::Calling { failed: MODEL_RETRIES_MAX }.apply(failure(true, None), NOW, 0.0);
    assert!(matches!(&last[..], [Action::Close(_), Action::Look]), "after {MODEL_RETRIES_MAX}: {last:?}");
}

#[test]
fn a_turn_waits_a_week_for_its_budget_and_then_ends() {
    let active_at = Timestamp(5_000);
    let end = Timestamp(active_at.0 + BUDGET_WAIT_MS);
    let at = |moment: i64, view: View| {
        let spent = View { out_of_budget: true, active_at, ..view };
        State::Looking.apply(Signal::Looked(spent), Timestamp(moment), 0.0)
    };
    let goes_on = || view(1, Some(LastStep { continues: true, ..step(1) }));
    let waits = [Action::Park(ParkReason::Wait(Wait { reason: Reason::Budget, until: Some(end) }))];
    for moment in [active_at.0, end.0 - 1] {
        assert_eq!(at(moment, goes_on()), waits, "at {moment}");
    }
    for view in [goes_on(), view(2, Some(step(1)))] {
        let ended = at(end.0, view);
        assert!(
            matches!(&ended[..], [Action::Close(error), Action::Look] if error.data.code.as_deref() == Some(BUDGET_SPENT)),
            "{ended:?}"
        );
    }
    let failed = LastStep { failed: Some(Outcome::Failed), ..step(1) };
    let over = [Action::Park(ParkReason::Idle(Outcome::Failed))];
    assert_eq!(at(end.0, view(1, Some(failed))), over, "the error ends the turn");
    assert_eq!(decided(goes_on()), model_step(0), "a raised budget lets it go on");
}

#[test]
fn what_waits_for_others_is_parked_once_nothing_runs() {
    let wait = |reason| Wait { reason, until: None };
    let mut state = State::default();
    let step = LastStep { closed: false, open: calls(&["a", "b", "c"]), ..step(1) };
    assert_eq!(driven(&mut state, Signal::Looked(view(1, Some(step)))), runs(&["a", "b", "c"]));
    let waits = [("a", Reason::Children), ("c", Reason::Permission)];
    let waits = waits.map(|(call, reason)| (call.to_owned(), CallState::Waits(wait(reason))));
    assert_eq!(state.apply(Signal::Calls(waits.to_vec()), NOW, 0.0), vec![], "b runs");
    assert_eq!(state.apply(Signal::ended("a".into()), NOW, 0.0), vec![], "a child that ends meanwhile");
    let parks = Action::Park(ParkReason::Wait(wait(Reason::Permission)));
    assert_eq!(state.apply(Signal::ended("b".into()), NOW, 0.0), vec![parks]);
    assert_eq!(state.apply(Signal::NewInput, NOW, 0.0), vec![Action::Look], "an answer came first");
}

#[test]
fn a_call_that_a_person_allowed_while_another_runs_is_not_waited_for_any_more() {
    let mut state = State::Calling { failed: 0 };
    driven(&mut state, Signal::Answered(calls(&["a", "b"])));
    let wait = Wait { reason: Reason::Permission, until: None };
    let mut change = |calls: &[(&str, CallState)]| {
        let calls = calls.iter().map(|(call, now)| ((*call).to_owned(), *now)).collect();
        state.apply(Signal::Calls(calls), NOW, 0.0)
    };
    assert_eq!(change(&[("a", CallState::Waits(wait))]), vec![]);
    assert_eq!(change(&[("a", CallState::Runs)]), vec![]);
    assert_eq!(change(&[("b", CallState::Ended)]), vec![], "a runs");
    assert_eq!(change(&[("a", CallState::Waits(wait)), ("a", CallState::Runs)]), vec![], "in one signal");
    assert_eq!(change(&[("a", CallState::Ended)]), vec![Action::Finish, Action::Look]);
}

#[test]
fn the_provider_says_how_long_to_wait_and_whether_at_all() {
    let wait = |signal| match &(State::Calling { failed: 0 }).apply(signal, NOW, 1.0)[..] {
        [Action::BackOff { until, .. }, ..] => Some(until.0 - NOW.0),
        _ => None,
    };
    assert_eq!(wait(failure(true, Some(100))), Some(110), "a tenth of jitter");
    assert_eq!(wait(failure(true, None)), Some(2_500), "a quarter of jitter");
    assert_eq!(wait(failure(true, Some(RETRY_AFTER_MAX_MS + 1))), None, "too long a wait fails the turn");
    assert_eq!(wait(failure(false, None)), None);
}

#[test]
fn an_abort_stops_first_and_closes_then() {
    let acting = State::Acting { open: BTreeSet::from(["c".into()]), waiting: BTreeMap::new() };
    for mut state in [State::Calling { failed: 0 }, State::BackingOff, acting] {
        assert_eq!(state.apply(Signal::Abort, NOW, 0.0), vec![Action::Stop(Stop::Abort)]);
        assert_eq!(state.apply(Signal::ended("c".into()), NOW, 0.0), vec![], "too late");
        assert_eq!(
            state.apply(Signal::Stopped, NOW, 0.0),
            vec![Action::Close(Error::aborted()), Action::Look]
        );
        assert_eq!(state, State::Looking, "a newer prompt is answered");
    }
}

#[test]
fn a_prompt_that_arrives_at_the_end_is_answered() {
    let mut state = State::Looking;
    state.apply(Signal::Looked(view(1, Some(step(1)))), NOW, 0.0);
    assert_eq!(state.apply(Signal::NewInput, NOW, 0.0), vec![Action::Look]);
    assert_eq!(driven(&mut state, Signal::Looked(view(2, Some(step(1))))), model_step(0));
}

#[test]
fn an_ended_turn_does_nothing_more() {
    for signal in [Signal::Looked(view(1, None)), Signal::Abort, Signal::Drain, Signal::NewInput] {
        assert_eq!(State::Ended.apply(signal.clone(), NOW, 0.0), vec![], "{signal:?}");
    }
}

mod properties;
