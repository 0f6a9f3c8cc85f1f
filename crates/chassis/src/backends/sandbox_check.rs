//! Whether the sandbox service that a gateway or a worker reaches is the one with the files of the sessions. A process that reaches another one would tell people
//! that their files are lost, so it does not start.

use crate::{Service, error::Error, lock};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Longest delay of a start by the comparison. Then the process starts, and goes on comparing.
const FIRST_MAX: Duration = Duration::from_secs(3);
/// Pause before the second comparison: services often start together. It doubles.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between two comparisons.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Two sandbox services by their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxIds {
    /// The one that has the files of the sessions.
    pub known: String,
    pub found: String,
}

/// The comparison of a process, which may go on while it runs.
#[derive(Debug, Clone)]
pub struct SandboxCheck {
    /// The address of the service.
    url: String,
    refusal: Arc<Mutex<Option<Error>>>,
}

impl SandboxCheck {
    /// Begins with the comparison. While `compare` gives `None`, because Postgres or the sandbox is away, it is repeated in a task, which asks the process to
    /// stop if the service turns out to be another one.
    ///
    /// # Errors
    /// `OtherSandbox`.
    pub async fn start<F>(
        url: &str,
        service: &Service,
        compare: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        F: Future<Output = Option<SandboxIds>> + Send + 'static,
    {
        let check = Self { url: url.to_owned(), refusal: Arc::default() };
        if let Ok(Some(ids)) = tokio::time::timeout(FIRST_MAX, compare()).await {
            return check.judge(ids).map(|()| check);
        }
        let (own, shutdown) = (check.clone(), service.shutdown.clone());
        service.tasks.spawn("sandbox identity", async move {
            let repeated = async {
                let mut pause = PAUSE;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    if let Some(ids) = compare().await {
                        return ids;
                    }
                }
            };
            let Some(ids) = shutdown.run_until_cancelled(repeated).await else { return };
            if let Err(error) = own.judge(ids) {
                *lock(&own.refusal) = Some(error);
                shutdown.cancel();
            }
        });
        Ok(check)
    }

    /// Says at the end of the process whether the comparison ended it.
    ///
    /// # Errors
    /// `OtherSandbox`.
    pub fn end(&self) -> Result<(), Error> {
        lock(&self.refusal).take().map_or(Ok(()), Err)
    }

    fn judge(&self, ids: SandboxIds) -> Result<(), Error> {
        let SandboxIds { known, found } = ids;
        if known == found {
            return Ok(());
        }
        Err(Error::OtherSandbox { url: self.url.clone(), known, found })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn ids(found: &str) -> Option<SandboxIds> {
        Some(SandboxIds { known: "sbx_1".to_owned(), found: found.to_owned() })
    }

    async fn start(service: &Service, answers: [Option<SandboxIds>; 3]) -> Result<SandboxCheck, Error> {
        let asked = AtomicU32::new(0);
        let compare = move || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            std::future::ready(answers[number as usize].clone())
        };
        SandboxCheck::start("http://h:1", service, compare).await
    }

    #[tokio::test]
    async fn another_sandbox_ends_the_process_also_if_it_answers_late() {
        let (service, _ready) = Service::in_process();
        let refused = start(&service, [ids("sbx_2"), None, None]).await.unwrap_err().to_string();
        for part in ["http://h:1 is sbx_2", "sessions are in sbx_1", "FLOTILLA_SANDBOX_REPLACES=sbx_1"] {
            assert!(refused.contains(part), "{refused}");
        }
        start(&service, [ids("sbx_1"), None, None]).await.unwrap().end().unwrap();
        let late = start(&service, [None, None, ids("sbx_2")]).await.unwrap();
        late.end().unwrap();
        service.shutdown.cancelled().await;
        assert_eq!(late.end().unwrap_err().to_string(), refused);
    }
}
