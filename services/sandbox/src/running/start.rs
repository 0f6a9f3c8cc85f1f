//! The start of one sandbox of a session: whether the script of the settings has run in it, and what the callers must know of that. The script itself runs
//! in `programs::start_script`.

use tokio::sync::watch;

#[derive(Debug, Default)]
pub struct SandboxStart {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    is_begun: bool,
    is_over: bool,
    failure: Option<String>,
    /// Whether an exec tells it.
    is_told: bool,
}

impl SandboxStart {
    /// Begins it. Only the first call gives true: its caller runs the script.
    pub fn begin(&self) -> bool {
        self.state.send_if_modified(|state| !std::mem::replace(&mut state.is_begun, true))
    }

    /// Ends it, with what went wrong.
    pub fn end(&self, failure: Option<String>) {
        self.state.send_modify(|state| {
            state.is_over = true;
            state.failure = failure;
        });
    }

    /// Returns when it is over. Cancel-safe.
    pub async fn over(&self) {
        // The sender lives as long as `self`.
        drop(self.state.subscribe().wait_for(|state| state.is_over).await);
    }

    pub fn failure(&self) -> Option<String> {
        self.state.borrow().failure.clone()
    }

    /// Returns what went wrong, to the first exec alone. Later calls give nothing.
    pub fn take_failure(&self) -> Option<String> {
        let is_new = self.state.send_if_modified(|state| {
            state.failure.is_some() && !std::mem::replace(&mut state.is_told, true)
        });
        self.failure().filter(|_| is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn one_caller_runs_the_script_and_one_exec_tells_what_went_wrong() {
        let start = SandboxStart::default();
        assert_eq!((start.begin(), start.begin()), (true, false));
        assert_eq!((start.over().now_or_never(), start.take_failure()), (None, None));
        start.end(Some("it failed".to_owned()));
        assert_eq!(start.over().now_or_never(), Some(()));
        assert_eq!((start.take_failure(), start.take_failure()), (Some("it failed".to_owned()), None));
        assert_eq!(start.failure().as_deref(), Some("it failed"));
    }
}
