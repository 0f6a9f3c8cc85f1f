//! A relay between the services and Postgres. It counts what the services ask for the sessions of a tenant. Their upkeep uses connections of another role,
//! which the relay does not carry: the speed of the machine decides how much upkeep falls into a count.

mod wire;

pub(crate) use wire::Traffic;

use crate::DatabaseUrls;
use chassis::lock;
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Bytes that pass at once.
const PIECE_BYTES: usize = 64 * 1024;

/// The relay. It runs until the process exits.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    traffic: Arc<Mutex<Traffic>>,
}

impl Relay {
    /// Starts a relay for the role that sees one tenant, and returns it with the URLs for the services.
    pub(super) async fn before(urls: &DatabaseUrls) -> (Self, DatabaseUrls) {
        let relay = Self::start(authority(&urls.app).to_owned()).await;
        let urls = DatabaseUrls { app: relay.url(&urls.app), system: urls.system.clone() };
        (relay, urls)
    }

    async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let counted = Arc::clone(&traffic);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A server that is gone closes the connections of the services, as without a relay.
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                relay(client, server, &counted);
            }
        });
        Self { address, traffic }
    }

    /// The URL of the same database behind this relay. TLS would hide what passes.
    fn url(&self, url: &str) -> String {
        format!("{}?sslmode=disable", url.replacen(authority(url), &self.address, 1))
    }

    /// Takes what was counted since the last call.
    pub(crate) fn take(&self) -> Traffic {
        std::mem::take(&mut *lock(&self.traffic))
    }
}

/// The host and the port in a URL with a login.
fn authority(url: &str) -> &str {
    url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a URL with a login")
}

fn relay(client: TcpStream, server: TcpStream, traffic: &Arc<Mutex<Traffic>>) {
    client.set_nodelay(true).expect("a socket");
    server.set_nodelay(true).expect("a socket");
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let counts = Arc::new(Mutex::new(wire::Connection::default()));
    let (connection, counted) = (Arc::clone(&counts), Arc::clone(traffic));
    tokio::spawn(pass(from_client, to_server, move |bytes| {
        lock(&connection).note_request(bytes, &mut lock(&counted));
    }));
    let (connection, counted) = (counts, Arc::clone(traffic));
    tokio::spawn(pass(from_server, to_client, move |bytes| {
        lock(&connection).note_answer(bytes, &mut lock(&counted));
    }));
}

/// Passes bytes on until a side closes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut count: impl FnMut(&[u8])) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        count(&piece[..length]);
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
