//! What holds in any order of signals, and in every wait.

use super::*;
use proptest::prelude::*;

fn any_need() -> impl Strategy<Value = Need> {
    prop::sample::select(vec![Need::Lease, Need::PromptFiles, Need::Guidance, Need::Commands, Need::Snapshot])
}

fn any_signal() -> impl Strategy<Value = Signal> {
    let any_view = (0u8..3, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0usize..4).prop_map(
        |(newest, answered, closed, continues, aborted, repeated_calls)| View {
            aborted,
            repeated_calls,
            ..view(newest, Some(LastStep { answered, closed, continues, ..step(1) }))
        },
    );
    let any_state = prop::sample::select(vec![
        CallState::Runs,
        CallState::Waits(Wait { reason: Reason::Children, until: None }),
        CallState::Ended,
    ]);
    prop_oneof![
        any_view.prop_map(Signal::Looked),
        any_need().prop_map(Signal::Ready),
        prop::collection::vec("[a-c]", 0..3).prop_map(Signal::Answered),
        (any::<bool>(), prop::option::of(0u64..10_000_000)).prop_map(|(r, ms)| failure(r, ms)),
        prop::collection::vec(("[a-c]", any_state), 1..4).prop_map(Signal::Calls),
        prop::sample::select(vec![
            Signal::PauseEnded,
            Signal::Doubted(None),
            Signal::Doubted(Some(Wait { reason: Reason::Permission, until: None })),
            Signal::Abort,
            Signal::Drain,
            Signal::Stopped,
            Signal::Parked,
            Signal::NewInput,
            Signal::Broken(Error::new("UnknownError", "gone"))
        ]),
    ]
}

/// A stored state in which a turn needs something before it goes on, and what follows then.
fn needy() -> Vec<(View, Vec<Action>)> {
    let left = LastStep { closed: false, open: calls(&["a", "b"]), ..step(1) };
    let due = |due| View { due, ..view(1, None) };
    vec![
        (view(1, None), model_step(0)),
        (due(Due::Summary), vec![Action::Summarize { failed: 0 }]),
        (due(Due::Preparation), vec![Action::Prepare, Action::Look]),
        (view(1, Some(left)), runs(&["a", "b"])),
    ]
}

/// Brings a turn into one of its waits: `depth` things that it needs have come. Also returns what the worker has done until then.
fn waiting(view: &View, depth: usize) -> Option<(State, Vec<Action>)> {
    let mut state = State::default();
    let mut done = state.apply(Signal::Looked(view.clone()), NOW, 0.0);
    for _ in 0..depth {
        let need = state.missing()?;
        done.extend(state.apply(Signal::Ready(need), NOW, 0.0));
    }
    state.missing()?;
    done.retain(|action| !matches!(action, Action::Fetch(..)));
    Some((state, done))
}

proptest! {
    /// In any order of signals, nothing follows the end, and every change of state comes with an action.
    #[test]
    fn every_order_of_signals_keeps_the_machine_alive(signals in prop::collection::vec(any_signal(), 0..40)) {
        let mut state = State::default();
        let mut ended = false;
        for signal in signals {
            let before = state.clone();
            let actions = state.apply(signal, NOW, 0.5);
            prop_assert!(!ended || actions.is_empty(), "acted after the end");
            prop_assert!(state == before || !actions.is_empty() || state == State::Ended
                || matches!((&before, &state), (State::Acting { .. }, State::Acting { .. })),
                "{before:?} became {state:?} with nothing to do");
            let fetches = matches!(actions.last(), Some(Action::Fetch(need, _)) if state.missing() == Some(*need));
            prop_assert!(state == before || state.missing().is_some() == fetches, "{state:?} waits for what nobody gets");
            ended |= state == State::Ended;
        }
    }

    /// An abort, a drain or a failure ends each wait at once, and what comes late changes nothing.
    #[test]
    fn each_wait_ends_at_once_when_the_turn_is_stopped(at in 0usize..4, depth in 0usize..5, late in any_need()) {
        let (view, _) = needy().swap_remove(at);
        let Some((waits, _)) = waiting(&view, depth) else { return Ok(()) };
        let error = Error::new("UnknownError", "gone");
        for (signal, stop, follows) in [
            (Signal::Abort, Stop::Abort, vec![Action::Close(Error::aborted()), Action::Look]),
            (Signal::Broken(error.clone()), Stop::Broken(error.clone()), vec![Action::Close(error), Action::Look]),
            (Signal::Drain, Stop::HandOver, vec![Action::HandOver]),
        ] {
            let mut state = waits.clone();
            prop_assert_eq!(state.apply(signal, NOW, 0.0), vec![Action::Stop(stop)]);
            prop_assert_eq!(state.apply(Signal::Ready(late), NOW, 0.0), vec![]);
            prop_assert_eq!(state.apply(Signal::Stopped, NOW, 0.0), follows);
            prop_assert_eq!(state.apply(Signal::Ready(late), NOW, 0.0), vec![]);
        }
    }

    /// Prompts and answers that arrive during a wait, and what other waits have got, change nothing: the turn reads them at its next look.
    #[test]
    fn what_arrives_during_a_wait_is_read_after_it(
        at in 0usize..4,
        depth in 0usize..5,
        noise in prop::collection::vec(any_signal(), 0..10),
    ) {
        let (view, want) = needy().swap_remove(at);
        let Some((mut state, _)) = waiting(&view, depth) else { return Ok(()) };
        for signal in noise {
            let ends = match &signal {
                Signal::Abort | Signal::Drain | Signal::Broken(_) | Signal::Failed(_) => true,
                Signal::Ready(need) => state.missing() == Some(*need),
                Signal::Looked(_) | Signal::Answered(_) | Signal::PauseEnded | Signal::Calls(_) | Signal::Doubted(_)
                | Signal::Stopped | Signal::Parked | Signal::NewInput => false,
            };
            if !ends {
                let before = state.clone();
                prop_assert_eq!(state.apply(signal, NOW, 0.0), vec![]);
                prop_assert_eq!(&state, &before);
            }
        }
        let need = state.missing();
        let actions = need.map(|need| driven(&mut state, Signal::Ready(need))).unwrap_or_default();
        prop_assert!(want.ends_with(&actions), "{actions:?} is no end of {want:?}");
        prop_assert_eq!(actions.last(), want.last());
    }

    /// A worker that takes over a turn in a wait does everything that the turn needs, and the first worker did nothing else.
    #[test]
    fn a_worker_that_takes_over_a_wait_does_the_same(at in 0usize..4, depth in 0usize..5) {
        let (view, want) = needy().swap_remove(at);
        let Some((_, done)) = waiting(&view, depth) else { return Ok(()) };
        prop_assert!(want.starts_with(&done), "{done:?} does not begin {want:?}");
        // A step that has begun is begun again: it has no answer.
        let begun = LastStep { answered: false, closed: false, ..step(1) };
        let has_begun = done.iter().any(|action| matches!(action, Action::BeginStep { .. }));
        let last = if has_begun { Some(begun) } else { view.last.clone() };
        prop_assert_eq!(decided(View { last, ..view }), want);
    }
}

#[test]
fn a_prompt_that_no_model_can_answer_ends_while_it_waits() {
    let (view, _) = needy().swap_remove(0);
    for depth in 0..4 {
        let Some((mut state, _)) = waiting(&view, depth) else { continue };
        let actions = state.apply(failure(false, None), NOW, 0.0);
        assert!(matches!(&actions[..], [Action::Close(_), Action::Look]), "{depth}: {actions:?}");
    }
}
