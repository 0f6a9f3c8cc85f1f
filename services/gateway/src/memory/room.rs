//! Room for large requests and answers: how many bytes of them one tenant, and all tenants together, can make this process hold at the
//! same time. The process holds a request several times: as bytes, as parts, as JSON for Postgres. A request or an answer that finds no
//! room waits, and is refused after a while.

use super::{
    answer_body::Readers,
    taken_room::{HeldRoom, TakenRoom},
};
use crate::errors::error::Error;
use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use domain::{ids::TenantId, limits};
use shares::{Busy, Permit, Rest, Shares, activity::Activity};
use std::{num::NonZero, pin::pin, sync::Arc, thread::available_parallelism, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// Bodies up to this size need no room: nearly all are smaller.
pub(crate) const SMALL_BODY_BYTES: usize = 64 * 1024;
/// Bytes of the bodies of one tenant: the largest body, and another one while it is stored.
const TENANT_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of the bodies of all tenants.
const BODY_BYTES: usize = 2 * TENANT_BODY_BYTES;
/// Bytes of the answers of one tenant: four pages of messages, or as many of the events that its streams send again.
const TENANT_ANSWER_BYTES: usize = 4 * PAGE_BYTES;
/// Bytes of the answers of all tenants. A client that reads slowly holds its answer for long, so this is far more than a few tenants can
/// take.
const ANSWER_BYTES: usize = 16 * TENANT_ANSWER_BYTES;
/// Bytes of one page of messages.
pub(crate) const PAGE_BYTES: usize = limits::MESSAGES_PAGE_BYTES as usize;
/// Items of streams up to this size need no room for their copies.
const SMALL_ITEM_BYTES: usize = 64 * 1024;
/// Bytes of the items that wait in the queues and rings of one tenant's streams. Beyond it, each of them holds one item, and what follows waits in
/// Postgres. A tenant with thousands of silent readers would otherwise hold gigabytes.
pub(crate) const TENANT_QUEUES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of the items that wait in the queues and rings of all streams. Beyond it, each of them holds one item. Silent readers hold them for long, so
/// this is far more than a few tenants can take.
const QUEUES_BYTES_MAX: usize = 16 * TENANT_QUEUES_BYTES_MAX;
/// Longest wait for room.
const WAIT: Duration = Duration::from_secs(10);
/// Longest wait of a stream for room. Its client has nothing to repeat, and silent readers give their room back before.
const STREAM_WAIT: Duration = Duration::from_secs(60);
/// The unit of the permits: 1 KiB.
const UNIT_BYTES: usize = 1024;
/// Event streams that one process serves at once: one for each connection that it accepts by default. One tenant gets three quarters of them.
/// Beyond it: `streams_too_many`.
const STREAMS_MAX: u32 = 16_384;

/// Uploads of bundles at the same time. Each holds 4 MiB at most: a message, what arrives of the next one, and what does not fill a piece yet. Further ones wait.
/// Beyond it: `requests_too_many`.
const UPLOADS_MAX: u32 = 128;
/// Those of one tenant: 64 MiB. Beyond it: `requests_too_many`.
const UPLOADS_TENANT_MAX: usize = 16;
/// How long a tenant rests after its turns: it moves much data for a quarter of the time, as soon as it has done so for some seconds. A person who uploads a
/// bundle or forks a session never rests; a tenant that does so without end leaves most of this process and of Postgres to others. It does not rest while no other
/// tenant sends requests: the next one finds the other half of the turns free.
const TURN_REST: Rest = Rest {
    factor: 3,
    credit: Duration::from_secs(10),
    longest: Duration::from_secs(10),
    alone_after: Duration::from_secs(10),
};
/// Longest wait for a turn to move much data, or to begin an upload. Beyond it: `requests_too_many`.
const TURN_WAIT: Duration = Duration::from_secs(30);

/// Calls of clients at the same time that read files of sessions: searches, listings, contents, diffs and settings of repositories. Most of their time they wait for
/// sandboxes, so there may be more of them than processors. Further ones wait. Beyond it: `requests_too_many`.
const FILE_READS_MAX: u32 = 256;
/// Those of one tenant. Beyond it: `requests_too_many`.
const FILE_READS_TENANT_MAX: usize = 8;
/// How long a tenant rests after such calls. The credit is larger than that of the turns and the rest is shorter, because a call may also wait for the start of a
/// sandbox, or for a machine that another tenant keeps busy. A person who types the name of a file never rests on an idle machine.
const FILE_READ_REST: Rest =
    Rest { credit: Duration::from_secs(30), longest: Duration::from_secs(5), ..TURN_REST };

/// The room of this process.
#[derive(Debug)]
pub(crate) struct Room {
    bodies: Shares<Option<TenantId>>,
    answers: Shares<TenantId>,
    queues: Shares<TenantId>,
    streams: Shares<TenantId>,
    turns: Shares<Option<TenantId>>,
    uploads: Shares<TenantId>,
    file_reads: Shares<Option<TenantId>>,
    /// The requests of tenants: a tenant rests after its turns and its reads of files only while another one sends requests.
    activity: Arc<Activity<Option<TenantId>>>,
    readers: Readers,
}

impl Room {
    pub(crate) fn new() -> Self {
        let units = |bytes: usize| u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let activity = Arc::new(Activity::default());
        let file_reads = Shares::new(FILE_READS_MAX, FILE_READS_TENANT_MAX);
        Self {
            bodies: Shares::new(units(BODY_BYTES), TENANT_BODY_BYTES / UNIT_BYTES),
            answers: Shares::new(units(ANSWER_BYTES), TENANT_ANSWER_BYTES / UNIT_BYTES),
            queues: Shares::new(units(QUEUES_BYTES_MAX), TENANT_QUEUES_BYTES_MAX / UNIT_BYTES),
            streams: Shares::three_quarters(STREAMS_MAX),
            turns: turns(available_parallelism().map_or(1, NonZero::get), Arc::clone(&activity)),
            uploads: Shares::new(UPLOADS_MAX, UPLOADS_TENANT_MAX),
            file_reads: file_reads.with_rest(FILE_READ_REST, Arc::clone(&activity)),
            activity,
            readers: Readers::default(),
        }
    }

    /// Drops the answers of readers that hold room and do not read, for ever.
    pub(crate) async fn cut_silent_readers(&self) {
        self.readers.cut_silent_forever().await;
    }

    /// Waits for the room of a body of `bytes`. The operator and others who act for no tenant share one holder.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn for_body(&self, tenant: Option<TenantId>, bytes: usize) -> Result<Permit, Error> {
        Ok(self.bodies.acquire_many(tenant, bytes.div_ceil(UNIT_BYTES), WAIT).await?)
    }

    /// Waits for a turn to move much data between a client and Postgres: a large body, a piece of a bundle, the copy of a history. Each keeps a processor of this
    /// process or of Postgres busy, and the short requests of other tenants would wait for all that one tenant can send at once.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn turn(&self, tenant: Option<TenantId>) -> Result<Permit, Error> {
        Ok(self.turns.acquire(tenant, TURN_WAIT).await?)
    }

    /// Notes a request of a tenant, large or small. Other tenants would delay the next one, so they rest after their turns for a while.
    pub(crate) fn note_request(&self, tenant: TenantId) {
        self.activity.note(Some(tenant));
    }

    /// Waits for the room of an upload, which takes as long as its client does.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn for_upload(&self, tenant: TenantId) -> Result<Permit, Error> {
        Ok(self.uploads.acquire(tenant, TURN_WAIT).await?)
    }

    /// Waits for the turn to read files of a session: each call takes a sandbox, which is started if it does not run, and its processors.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn file_read(&self, tenant: TenantId) -> Result<Permit, Error> {
        Ok(self.file_reads.acquire(Some(tenant), TURN_WAIT).await?)
    }

    /// Waits for the room of a page of messages.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn for_page(&self, tenant: TenantId) -> Result<Permit, Error> {
        Ok(self.answers.acquire_many(tenant, PAGE_BYTES / UNIT_BYTES, WAIT).await?)
    }
}

/// As many turns as there are processors. One tenant gets half of them, and rests after them while others are active.
fn turns(processors: usize, activity: Arc<Activity<Option<TenantId>>>) -> Shares<Option<TenantId>> {
    let turns = u32::try_from(processors).unwrap_or(u32::MAX);
    Shares::new(turns, processors.div_ceil(2)).with_rest(TURN_REST, activity)
}

/// The room of an answer that is a stream: what it takes, it gives back as its reader reads. It counts as an open stream as long as it lives.
/// Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct StreamRoom {
    room: Arc<Room>,
    tenant: TenantId,
    taken: TakenRoom,
    _stream: Arc<Permit>,
}

impl StreamRoom {
    /// Begins a stream. The stream does not wait for others to end: that may take days.
    ///
    /// # Errors
    /// `streams_too_many`.
    pub(crate) async fn begin(room: Arc<Room>, tenant: TenantId, taken: TakenRoom) -> Result<Self, Error> {
        let stream = room.streams.acquire(tenant, Duration::ZERO).await;
        let stream = stream.map_err(|_: Busy| Error::StreamsTooMany)?;
        Ok(Self { room, tenant, taken, _stream: Arc::new(stream) })
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Waits for the room of so many bytes, and of their copies on the way to the reader.
    ///
    /// # Errors
    /// `requests_too_many`.
    pub(crate) async fn take(&self, bytes: usize) -> Result<HeldRoom, Error> {
        let units = bytes.div_ceil(UNIT_BYTES);
        let permit = self.room.answers.acquire_many(self.tenant, units, STREAM_WAIT).await?;
        Ok(self.taken.lend(permit))
    }

    /// The same for bytes that are already in the memory of the process, shared by all readers; `None`: their copies are small. While there is no room, the
    /// stream sends its heartbeats with `beat`.
    ///
    /// # Errors
    /// `requests_too_many`, and those of `beat`.
    pub(crate) async fn take_for_copy<E, B>(
        &self,
        bytes: usize,
        beat: impl Fn() -> B,
    ) -> Result<Option<HeldRoom>, E>
    where
        E: From<Error>,
        B: Future<Output = Result<(), E>>,
    {
        if bytes <= SMALL_ITEM_BYTES {
            return Ok(None);
        }
        // On the heap: thousands of streams wait for something else.
        Box::pin(with_heartbeats(self.take(bytes), beat)).await.map(Some)
    }

    /// The room of what waits for the reader of the stream.
    pub(crate) fn queues(&self) -> QueueRoom {
        QueueRoom::new(Arc::clone(&self.room), self.tenant)
    }
}

/// Waits for room, and calls `beat` at once and then in each period: the last heartbeat before the wait may be nearly a period old.
async fn with_heartbeats<E, B>(
    room: impl Future<Output = Result<HeldRoom, Error>>,
    beat: impl Fn() -> B,
) -> Result<HeldRoom, E>
where
    E: From<Error>,
    B: Future<Output = Result<(), E>>,
{
    let mut room = pin!(room);
    let mut beats = interval(Duration::from_millis(limits::STREAM_HEARTBEAT_MS));
    // While the queue of the stream is full, heartbeats wait too. Those that were due meanwhile are not sent.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            taken = &mut room => return taken.map_err(E::from),
            _ = beats.tick() => beat().await?,
        }
    }
}

/// The room of the items that wait for the readers of a tenant's streams.
#[derive(Debug, Clone)]
pub(crate) struct QueueRoom {
    room: Arc<Room>,
    tenant: TenantId,
}

impl QueueRoom {
    pub(crate) fn new(room: Arc<Room>, tenant: TenantId) -> Self {
        Self { room, tenant }
    }

    /// Takes the room of an item; `None`: there is none now.
    pub(crate) fn take(&self, bytes: usize) -> Option<Permit> {
        self.room.queues.try_acquire_many(self.tenant, bytes.div_ceil(UNIT_BYTES))
    }
}

/// Keeps what a request takes until its answer is gone.
pub(crate) async fn keep_until_answered(
    State(room): State<Arc<Room>>,
    mut request: Request,
    next: Next,
) -> Response {
    let taken = TakenRoom::default();
    request.extensions_mut().insert(taken.clone());
    let response = next.run(request).await;
    let is_whole = response.body().size_hint().exact().is_some();
    if is_whole && !taken.is_held() {
        return response;
    }
    response.map(|body| Body::new(room.readers.watch(body, taken)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use axum::{Router, middleware::from_fn_with_state, routing::get};
    use futures::FutureExt as _;
    use tokio::{sync::mpsc, time::Instant};
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn one_tenant_leaves_room_to_others() {
        let (room, tenant) = (Room::new(), |id| Some(TenantId(uuid::Uuid::from_u128(id))));
        let first = room.for_body(tenant(1), TENANT_BODY_BYTES).now_or_never().unwrap().unwrap();
        assert!(room.for_body(tenant(1), 1).now_or_never().is_none());
        let second = room.for_body(tenant(2), 12 << 20).now_or_never().unwrap().unwrap();
        assert!(room.for_body(None, 4 << 20).now_or_never().unwrap().is_ok());
        drop((first, second));
        assert!(room.for_body(tenant(1), usize::MAX).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn one_tenant_leaves_turns_to_others() {
        let tenant = |id| Some(TenantId(uuid::Uuid::from_u128(id)));
        for (processors, each) in [(1, 1), (2, 1), (3, 2), (8, 4)] {
            let room = Room { turns: turns(processors, Arc::default()), ..Room::new() };
            let take = |holder| room.turn(holder).now_or_never();
            let held: Vec<Permit> = (0..each).map(|_| take(tenant(1)).unwrap().unwrap()).collect();
            assert!(take(tenant(1)).is_none(), "of {processors}");
            assert_eq!(take(tenant(2)).is_some(), processors > 1, "of {processors}");
            drop(held);
            take(tenant(1)).unwrap().unwrap();
        }
    }

    /// Works for a moment if there is a turn now, and returns whether there was one.
    fn work_now(turn: impl Future<Output = Result<Permit, Error>>) -> bool {
        let turn = turn.now_or_never().map(Result::unwrap);
        let began_at = Instant::now();
        while began_at.elapsed() < Duration::from_micros(10) {}
        turn.is_some()
    }

    #[tokio::test]
    async fn a_tenant_rests_after_its_turns_when_another_one_sends_requests() {
        let rest = Rest { factor: u32::MAX, ..TURN_REST };
        let room = Room::new();
        let turns = Shares::new(2, 1).with_rest(rest, Arc::clone(&room.activity));
        let room = Room { turns, ..room };
        let [greedy, other] = [1, 2].map(|id| TenantId(uuid::Uuid::from_u128(id)));
        let move_data = |tenant| work_now(room.turn(Some(tenant)));
        room.note_request(greedy);
        assert!(move_data(greedy) && move_data(greedy), "it is alone");
        room.note_request(other);
        assert!(!move_data(greedy));
        assert!(move_data(other));
    }

    #[tokio::test]
    async fn a_tenant_that_searches_without_end_rests_and_others_do_not() {
        let rest = Rest { factor: u32::MAX, ..FILE_READ_REST };
        let room = Room::new();
        let file_reads = Shares::new(2, 1).with_rest(rest, Arc::clone(&room.activity));
        let room = Room { file_reads, ..room };
        let [greedy, other] = [1, 2].map(|id| TenantId(uuid::Uuid::from_u128(id)));
        let search = |tenant| work_now(room.file_read(tenant));
        assert!(search(greedy) && search(greedy), "it is alone");
        room.note_request(other);
        assert!(!search(greedy));
        assert!(search(other));
    }

    #[tokio::test]
    async fn one_tenant_leaves_file_reads_to_others_and_a_person_does_not_rest() {
        let room = Room::new();
        let [greedy, other] = [1, 2].map(|id| TenantId(uuid::Uuid::from_u128(id)));
        let held: Vec<Permit> = (0..FILE_READS_TENANT_MAX)
            .map(|_| room.file_read(greedy).now_or_never().unwrap().unwrap())
            .collect();
        assert!(room.file_read(greedy).now_or_never().is_none());
        // Far more than a person types.
        for _ in 0..100 {
            room.file_read(other).now_or_never().unwrap().unwrap();
        }
        drop(held);
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_to_the_uploads_of_others() {
        let (room, tenant) = (Room::new(), |id| TenantId(uuid::Uuid::from_u128(id)));
        let begin = |id| room.for_upload(tenant(id)).now_or_never();
        let held: Vec<Permit> = (0..UPLOADS_TENANT_MAX).map(|_| begin(1).unwrap().unwrap()).collect();
        assert!(begin(1).is_none());
        assert!(begin(2).is_some());
        drop(held);
        begin(1).unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_streams_of_one_tenant_leave_some_to_others() {
        let room = Arc::new(Room { streams: Shares::three_quarters(4), ..Room::new() });
        let begin = |tenant| {
            let tenant = TenantId(uuid::Uuid::from_u128(tenant));
            StreamRoom::begin(Arc::clone(&room), tenant, TakenRoom::default())
        };
        let first = begin(1).await.unwrap();
        let others = [begin(1).await.unwrap(), begin(1).await.unwrap()];
        assert_eq!(begin(1).await.unwrap_err(), Error::StreamsTooMany);
        let other_tenant = begin(2).await.unwrap();
        assert_eq!(begin(2).await.unwrap_err(), Error::StreamsTooMany);
        drop(first);
        begin(1).await.unwrap();
        drop((others, other_tenant));
    }

    #[tokio::test]
    async fn a_stream_that_waits_for_room_sends_heartbeats() {
        let (room, tenant) = (Arc::new(Room::new()), TenantId(uuid::Uuid::nil()));
        let stream = StreamRoom::begin(room, tenant, TakenRoom::default()).await.unwrap();
        let (sender, mut heartbeats) = mpsc::channel(1);
        let beat = || async { sender.send(()).await.map_err(|_| Error::GatewayStopping) };
        assert!(stream.take_for_copy(SMALL_ITEM_BYTES, beat).await.unwrap().is_none());
        assert!(stream.take_for_copy(SMALL_ITEM_BYTES + 1, beat).await.unwrap().is_some());
        assert!(heartbeats.try_recv().is_err(), "there was room at once");

        let held = stream.take(TENANT_ANSWER_BYTES).await.unwrap();
        let give_back = async {
            heartbeats.recv().await.unwrap();
            drop(held);
        };
        let (taken, ()) = tokio::join!(stream.take_for_copy(SMALL_ITEM_BYTES + 1, beat), give_back);
        assert!(taken.unwrap().is_some());
    }

    #[tokio::test]
    async fn room_is_taken_until_the_answer_is_read() {
        let room = Arc::new(Room::new());
        let tenant = TenantId(uuid::Uuid::nil());
        let of_handler = Arc::clone(&room);
        let handler = async move |request: Request| {
            for _ in 0..4 {
                TakenRoom::of(request.extensions()).keep(of_handler.for_page(tenant).await.unwrap());
            }
            "page"
        };
        let layer = from_fn_with_state(Arc::clone(&room), keep_until_answered);
        let router = Router::new().route("/", get(handler)).layer(layer);
        let response = router.oneshot(Request::new(Body::empty())).await.unwrap();
        assert!(room.for_page(tenant).now_or_never().is_none());
        let bytes = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(bytes, "page");
        assert!(room.for_page(tenant).now_or_never().unwrap().is_ok());
    }
}
