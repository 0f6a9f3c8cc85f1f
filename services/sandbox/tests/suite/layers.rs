//! Layers of images that are made in memory, and a base layer with a shell of this machine.

use crate::harness::{Client, Machine, Session, is_root};
use flate2::{Compression, write::GzEncoder};
use rpc::v1::{self, put_layer_request::Part};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};
use tonic::Status;

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// How the isolation begins to tell that layers cannot be joined.
const UNSUPPORTED: &str = "unsupported";
/// Programs of this machine that the base layer has.
const PROGRAMS: [&str; 2] = ["/bin/bash", "/bin/cat"];

/// An archive, entry by entry.
pub struct Archive(tar::Builder<Vec<u8>>);

/// A layer as a registry has it.
#[derive(Clone)]
pub struct Layer {
    pub blob: Vec<u8>,
    pub header: v1::LayerHeader,
}

impl Default for Archive {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl Archive {
    fn entry(mut self, kind: tar::EntryType, mode: u32, path: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    pub fn directory(self, path: &str) -> Self {
        self.entry(tar::EntryType::Directory, 0o755, path, b"")
    }

    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, 0o644, path, content)
    }

    pub fn program(self, path: &str, content: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, 0o755, path, content)
    }

    pub fn link(mut self, path: &str, target: &str) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        self.0.append_link(&mut header, path, target).unwrap();
        self
    }

    pub fn layer(self) -> Layer {
        let archive = self.0.into_inner().unwrap();
        Layer::new(archive.clone(), &archive, TAR)
    }

    pub fn gzip(self) -> Layer {
        let archive = self.0.into_inner().unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&archive).unwrap();
        Layer::new(encoder.finish().unwrap(), &archive, GZIP)
    }
}

impl Layer {
    fn new(blob: Vec<u8>, archive: &[u8], media_type: &str) -> Self {
        let header = v1::LayerHeader {
            digest: digest(&blob),
            diff_id: digest(archive),
            media_type: media_type.to_owned(),
            is_proof: false,
            tenant_id: String::new(),
        };
        Self { blob, header }
    }

    pub fn id(&self) -> String {
        self.header.diff_id.clone()
    }
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", domain::text::hex(&Sha256::digest(bytes)))
}

/// A layer with a shell, `cat` and what both need.
pub fn base() -> Layer {
    static BASE: LazyLock<Layer> = LazyLock::new(|| programs(&PROGRAMS));
    BASE.clone()
}

/// A layer with programs of this machine and what they need.
pub fn programs(programs: &[&str]) -> Layer {
    let mut files: BTreeSet<PathBuf> = programs.iter().map(PathBuf::from).collect();
    for program in programs {
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        files.extend(listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    let archive = files.iter().fold(Archive::default(), |archive, file| {
        archive.program(file.to_str().unwrap().trim_start_matches('/'), &fs::read(file).unwrap())
    });
    archive.gzip()
}

/// Starts a service for images. They need no control groups, so these tests also run where the service has no rights, with a bubblewrap that
/// can join layers. `None`: the machine cannot join layers for users other than root, so the test is skipped.
pub async fn start(data: &Path, arguments: &[&str]) -> Option<Machine> {
    let machine = Machine::start_with(data, &[&["--without", "memory,processes"], arguments].concat()).await;
    let isolation =
        machine.client.clone().get_isolation(v1::GetIsolationRequest {}).await.unwrap().into_inner();
    let joins = &isolation.properties["images"];
    if is_root() || !joins.starts_with(UNSUPPORTED) {
        return Some(machine);
    }
    testkit::left_out::skip(&format!("images are {joins}"));
    None
}

/// Sends a layer, and returns whether the machine took it.
pub async fn put(client: &Client, layer: &Layer) -> Result<bool, Status> {
    let pieces = layer.blob.chunks(rpc::CHUNK_BYTES).map(|piece| Part::Data(piece.to_vec()));
    let parts = [Part::Header(layer.header.clone())].into_iter().chain(pieces);
    let requests: Vec<_> = parts.map(|part| v1::PutLayerRequest { part: Some(part) }).collect();
    client.clone().put_layer(tokio_stream::iter(requests)).await.map(|response| response.into_inner().created)
}

/// Returns which of these layers the machine lacks.
pub async fn missing(client: &Client, layers: &[&Layer]) -> Vec<String> {
    let request = v1::CheckLayersRequest { image: Some(image(layers)) };
    client.clone().check_layers(request).await.unwrap().into_inner().missing_diff_ids
}

pub fn image(layers: &[&Layer]) -> v1::Image {
    v1::Image { diff_ids: layers.iter().map(|layer| layer.id()).collect(), env: vec![] }
}

/// Opens an empty workspace with an image.
pub async fn open(session: &Session, layers: &[&Layer]) -> Result<v1::OpenWorkspaceResponse, Status> {
    let header = v1::WorkspaceHeader { image: Some(image(layers)), ..Default::default() };
    session.open(header, Vec::new()).await
}

/// Sends the layers, and gives a session with them.
pub async fn session_with(machine: &Machine, layers: &[&Layer]) -> Session {
    for layer in layers {
        put(&machine.client, layer).await.unwrap();
    }
    let session = machine.session();
    open(&session, layers).await.unwrap();
    session
}
