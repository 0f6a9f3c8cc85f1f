//! What GitHub has sent the App, and could not send.

use super::{answers::AttemptAnswer, client::Github, reads::encoded};
use crate::forge::error::ForgeError;
use domain::{ids::Timestamp, pull_request::missed::Attempt};
use reqwest::Method;
use serde_json::Value;

impl Github {
    /// Lists attempts to send a delivery, the newest first, with the cursor of the next page. An empty cursor is that of the first page.
    ///
    /// # Errors
    /// Those of [`Github::call_as_app`].
    pub(crate) async fn list_attempts(
        &self,
        cursor: &str,
    ) -> Result<(Vec<Attempt>, Option<String>), ForgeError> {
        let mut path = "/app/hook/deliveries?per_page=100".to_owned();
        if !cursor.is_empty() {
            path = format!("{path}&cursor={}", encoded(cursor));
        }
        let (answers, next): (Vec<AttemptAnswer>, _) = self.call_as_app(&Method::GET, &path).await?;
        let attempt = |AttemptAnswer { id, guid, delivered_at }| {
            let unreadable = || ForgeError::Failed(format!("{delivered_at:?} is no time"));
            let at = Timestamp::parse_rfc3339(&delivered_at).ok_or_else(unreadable)?;
            Ok(Attempt { id, guid, at })
        };
        Ok((answers.into_iter().map(attempt).collect::<Result<_, ForgeError>>()?, next))
    }

    /// Has GitHub send the delivery of an attempt again.
    ///
    /// # Errors
    /// Those of [`Github::call_as_app`].
    pub(crate) async fn repeat_attempt(&self, id: u64) -> Result<(), ForgeError> {
        let path = format!("/app/hook/deliveries/{id}/attempts");
        self.call_as_app::<Value>(&Method::POST, &path).await.map(drop)
    }
}
