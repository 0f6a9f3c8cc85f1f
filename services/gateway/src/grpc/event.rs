//! `EventService`: live and resumable streams of events.
// Continues in app::events::subscribe.

use super::{
    service::{Service, principal},
    status::{id, optional_id, to_status},
};
use crate::{
    app::events::subscribe::{self, SessionStream, TenantStream},
    errors::{entity::Entity, error::Error, invalid::Invalid},
    memory::taken_room::TakenRoom,
    streams::{
        cursor::{self, Start},
        event::{Fragment, StreamEvent},
        subscription::{Item, Items},
        tenant_subscription::{TenantContent, TenantItem, TenantItems},
    },
};
use futures::{StreamExt as _, stream::Map};
use rpc::v1::{
    self, event_service_server::EventService, subscribe_all_response::Item as AllItem,
    subscribe_response::Item as OneItem,
};
use tonic::{Request, Response, Status};

/// A stream `S` of items `T`, converted one by one.
type Converted<S, T, R> = Map<S, fn(Result<T, Error>) -> Result<R, Status>>;

#[tonic::async_trait]
impl EventService for Service {
    type SubscribeAllStream = Converted<TenantItems, TenantItem, v1::SubscribeAllResponse>;
    type SubscribeStream = Converted<Items, Item, v1::SubscribeResponse>;

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let principal = principal(&request)?;
        let taken = TakenRoom::of(request.extensions());
        let request = request.into_inner();
        if request.tail_only && !request.cursor.is_empty() {
            let message = "a stream begins either at a cursor or at the tail, not both";
            return Err(to_status(Invalid::Cursor.because(message)));
        }
        let start = if request.tail_only { Ok(Start::Now) } else { cursor::parse_session(&request.cursor) };
        let stream = SessionStream {
            session: id(&request.session_id, Entity::Session)?,
            start: start.map_err(to_status)?,
            until_idle_after: request.until_idle.then_some(request.idle_after_seq),
            taken,
        };
        let items = subscribe::follow_session(&self.0, &principal, stream).await.map_err(to_status)?;
        let convert: fn(_) -> _ = |item: Result<Item, Error>| item.map(session_item).map_err(to_status);
        Ok(Response::new(items.map(convert)))
    }

    async fn subscribe_all(
        &self,
        request: Request<v1::SubscribeAllRequest>,
    ) -> Result<Response<Self::SubscribeAllStream>, Status> {
        let principal = principal(&request)?;
        let taken = TakenRoom::of(request.extensions());
        let request = request.into_inner();
        let since = cursor::parse_tenant(&request.cursor).map_err(to_status)?;
        let project = optional_id(&request.project_id, Entity::Project)?;
        let stream = TenantStream { project, since, taken };
        let items = subscribe::follow_tenant(&self.0, &principal, stream).await.map_err(to_status)?;
        let convert: fn(_) -> _ = |item: Result<TenantItem, Error>| item.map(tenant_item).map_err(to_status);
        Ok(Response::new(items.map(convert)))
    }
}

fn session_item(item: Item) -> v1::SubscribeResponse {
    let cursor = match &item {
        Item::Event(event) => cursor::of_session(event.seq),
        Item::Fragment(_) | Item::Notice(_) | Item::Heartbeat(_) => String::new(),
    };
    let item = match item {
        Item::Event(item) => OneItem::Event(event(item)),
        Item::Fragment(fragment) => OneItem::Delta(delta(fragment)),
        Item::Notice(notice) => OneItem::Notice(v1::Notice {
            id: notice.id,
            kind: notice.kind,
            properties_json: notice.properties.into_bytes(),
        }),
        Item::Heartbeat(event_seq) => OneItem::Heartbeat(v1::Heartbeat { event_seq }),
    };
    v1::SubscribeResponse { item: Some(item), cursor }
}

fn tenant_item(item: TenantItem) -> v1::SubscribeAllResponse {
    let content = match item.content {
        TenantContent::Event(item) => AllItem::Event(event(item)),
        TenantContent::Fragment(fragment) => AllItem::Delta(delta(fragment)),
        TenantContent::Notice(notice) => AllItem::Notice(v1::Notice {
            id: notice.id,
            kind: notice.kind,
            properties_json: notice.properties.get().as_bytes().to_vec(),
        }),
        TenantContent::Heartbeat => AllItem::Heartbeat(v1::Heartbeat { event_seq: 0 }),
    };
    v1::SubscribeAllResponse {
        session_id: item.session.map(String::from).unwrap_or_default(),
        project_id: item.project.map(|project| project.to_string()).unwrap_or_default(),
        cursor: item.cursor.to_string(),
        item: Some(content),
    }
}

fn event(event: StreamEvent) -> v1::Event {
    v1::Event {
        seq: event.seq,
        epoch: event.epoch,
        kind: event.kind,
        properties_json: event.properties,
        at_ms: event.at.0,
        id: event.id,
    }
}

fn delta(fragment: Fragment) -> v1::Delta {
    v1::Delta {
        message_id: fragment.message_id.into(),
        part_id: fragment.part_id.into(),
        field: "text".to_owned(),
        offset_bytes: fragment.offset_bytes,
        text: fragment.text,
    }
}
