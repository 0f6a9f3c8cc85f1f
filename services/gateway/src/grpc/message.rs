//! `MessageService`: what was said, newest state.

use super::{Service, id, next_cursor, page, session_id, to_wire};
use domain::limits;
use rpc::v1::{self, message_service_server::MessageService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl MessageService for Service {
    async fn list_messages(
        &self,
        request: Request<v1::ListMessagesRequest>,
    ) -> Result<Response<v1::ListMessagesResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let (session, page) = (session_id(&request.session_id)?, page(request.page, is_cursor)?);
        let store = &self.0.store;
        store.get_head(principal.tenant, &session).await.map_err(super::from_store)?;
        let entries =
            store.list_messages(principal.tenant, &session, &page).await.map_err(super::from_store)?;
        // Pages go back in time: the next one ends before this one's first message.
        let reversed: Vec<_> = entries.iter().rev().collect();
        let mut next_cursor = next_cursor(&page, &reversed, |entry| entry.seq.to_string());
        let (mut messages, mut bytes) = (Vec::with_capacity(entries.len()), 0);
        for entry in reversed {
            let message = to_wire::message(entry)?;
            bytes += message.parts.iter().map(|part| part.json.len()).sum::<usize>();
            if bytes > limits::MESSAGES_BYTES_MAX && !messages.is_empty() {
                next_cursor = (entry.seq + 1).to_string();
                break;
            }
            messages.push(message);
        }
        messages.reverse();
        Ok(Response::new(v1::ListMessagesResponse { messages, next_cursor }))
    }

    async fn get_message(
        &self,
        request: Request<v1::GetMessageRequest>,
    ) -> Result<Response<v1::GetMessageResponse>, Status> {
        let principal = self.0.principal(&request).await?;
        let request = request.into_inner();
        let (session, message) =
            (session_id(&request.session_id)?, id(&request.message_id, "message_not_found", "message")?);
        let entry = self
            .0
            .store
            .get_message(principal.tenant, &session, &message)
            .await
            .map_err(super::from_store)?;
        Ok(Response::new(v1::GetMessageResponse { message: Some(to_wire::message(&entry)?) }))
    }
}

/// Whether a list of messages may have given it: the place of a message.
fn is_cursor(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|seq| i64::try_from(seq).is_ok())
}
