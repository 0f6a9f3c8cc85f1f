//! Says what a start waits for, if it takes longer than people expect.

use crate::terminal::output;
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// Time after which a person wonders what the start waits for.
pub(super) const LONG: Duration = Duration::from_secs(2);

/// Waits for `work`, and says after a while that it does.
pub(super) async fn note_long<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        () = tokio::time::sleep(LONG) => output::note(&format!("waiting for {what} …")),
    }
    work.await
}

/// The body of `/readyz`, as far as it is needed here.
#[derive(Debug, Default, Deserialize)]
struct Readiness {
    #[serde(default)]
    components: BTreeMap<String, Component>,
}

#[derive(Debug, Deserialize)]
struct Component {
    ok: bool,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    message: String,
}

/// What a service that is not ready lacks, in words, from the body of its `/readyz`; empty: it does not say.
pub(super) fn lacking(body: &str) -> String {
    let readiness: Readiness = serde_json::from_str(body).unwrap_or_default();
    let lacking =
        readiness.components.into_iter().filter(|(_, component)| !component.ok && !component.optional);
    let words = lacking.map(|(name, Component { message, .. })| match message.as_str() {
        "" => name,
        message => format!("{name}: {message}"),
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_what_it_lacks() {
        let body = r#"{"ready":false,"components":{"disk":{"ok":false,"message":"190 MiB free, 2 GiB needed"},"postgres":{"ok":true,"message":""},
                       "nats":{"ok":false,"message":"refused","optional":true},"walls":{"ok":false}}}"#;
        assert_eq!(lacking(body), "disk: 190 MiB free, 2 GiB needed; walls");
        assert_eq!(lacking("starting"), "");
    }
}
