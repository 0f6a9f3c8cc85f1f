//! Turns signals into a cancellation token. Each service drains itself. `predecessor` waits for the locks of a service that does so.

pub mod predecessor;

use crate::tasks::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code after a second signal: the code that a shell shows for a process that Ctrl-C ended.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once, without draining.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn signals() -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let listen = async move {
        let mut again = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if again {
                tracing::warn!("second signal; exiting at once");
                std::process::exit(EXIT_SECOND_SIGNAL);
            }
            again = true;
            tracing::info!("stopping; a second signal exits at once");
            cancelled.cancel();
        }
    };
    // Not joined at shutdown: a second signal must reach a service that hangs.
    drop(Tasks::default().spawn("signals", listen));
    Ok(token)
}
