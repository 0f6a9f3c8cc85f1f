//! The messages, the settings and the terminals of the fake gateway: one of each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Answer, Fake, no};
use futures::stream::BoxStream;
use rpc::v1::{
    message_service_server::MessageService, pty_service_server::PtyService,
    settings_service_server::SettingsService, *,
};
use serde_json::json;
use tonic::{Request, Response, Status, Streaming};

#[tonic::async_trait]
impl MessageService for Fake {
    async fn list_messages(&self, request: Request<ListMessagesRequest>) -> Answer<ListMessagesResponse> {
        // Two pages, the newer one first.
        let cursor = request.into_inner().page.unwrap_or_default().cursor;
        let (texts, next_cursor) = if cursor.is_empty() { (["3", "4"], "more") } else { (["1", "2"], "") };
        let message = |text: &str| {
            let json = json!({"id": text, "messageID": text, "type": "text", "text": text}).to_string();
            let info_json = json!({"id": text, "role": "user"}).to_string();
            let (id, role) = (format!("msg_1ffcce3d00015Oy45kUL559D5{text}"), "user".to_owned());
            let parts = vec![Part { kind: "text".to_owned(), json, ..Part::default() }];
            Message { id, role, info_json, parts, ..Message::default() }
        };
        let messages = texts.map(message).to_vec();
        Ok(Response::new(ListMessagesResponse { messages, next_cursor: next_cursor.to_owned() }))
    }

    async fn get_message(&self, _: Request<GetMessageRequest>) -> Answer<GetMessageResponse> {
        no()
    }
}

#[tonic::async_trait]
impl SettingsService for Fake {
    async fn get_settings(&self, _: Request<GetSettingsRequest>) -> Answer<GetSettingsResponse> {
        let settings = Settings { document: "{}".to_owned(), ..Settings::default() };
        Ok(Response::new(GetSettingsResponse { settings: Some(settings) }))
    }

    async fn set_settings(&self, _: Request<SetSettingsRequest>) -> Answer<SetSettingsResponse> {
        Ok(Response::new(SetSettingsResponse::default()))
    }

    async fn explain_settings(&self, _: Request<ExplainSettingsRequest>) -> Answer<ExplainSettingsResponse> {
        let (settings, ignored) = (vec![Setting::default()], vec![SettingOrigin::default()]);
        let problems = "opencode.json:1:1: it is no JSON".to_owned();
        Ok(Response::new(ExplainSettingsResponse { settings, ignored, problems, is_refused: false }))
    }
}

#[tonic::async_trait]
impl PtyService for Fake {
    type AttachPtyStream = BoxStream<'static, Result<AttachPtyResponse, Status>>;

    async fn create_pty(&self, _: Request<CreatePtyRequest>) -> Answer<CreatePtyResponse> {
        no()
    }

    async fn list_ptys(&self, _: Request<ListPtysRequest>) -> Answer<ListPtysResponse> {
        Ok(Response::new(ListPtysResponse { ptys: vec![Terminal::default()] }))
    }

    async fn get_pty(&self, _: Request<GetPtyRequest>) -> Answer<GetPtyResponse> {
        no()
    }

    async fn update_pty(&self, _: Request<UpdatePtyRequest>) -> Answer<UpdatePtyResponse> {
        no()
    }

    async fn delete_pty(&self, _: Request<DeletePtyRequest>) -> Answer<DeletePtyResponse> {
        no()
    }

    async fn attach_pty(&self, _: Request<Streaming<AttachPtyRequest>>) -> Answer<Self::AttachPtyStream> {
        no()
    }
}
