//! The cost of environments on a sandbox machine: images at `/`, layers that arrive, and environments that are there already. Speaks to the sandbox
//! service alone.

use crate::{
    Options,
    bench::{
        figure::{Figure, Quantity, Target},
        samples::Samples,
        sandbox::client::{self, Client},
        testbed::{Servers, Testbed},
    },
    layers,
};
use rpc::v1::{
    self, attach_exec_response::Item, open_workspace_request::Part, put_layer_request::Part as LayerPart,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use testkit::registry::content::digest;

/// What the programs of the image are: a shell, and what it loads.
const SHELL: &str = "/bin/bash";
const LAYERS: usize = 5;
/// A setup that takes no time, so that nothing but the look-up is measured.
const SETUP: &str = "echo made > /made";

/// The sizes of the measurements.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Starts of sandboxes of each kind, and look-ups of an environment.
    rounds: usize,
    /// Bytes of the layer that arrives.
    layer_bytes: usize,
    /// Sandboxes that run in one image at the same time.
    sandboxes: usize,
}

impl Sizes {
    /// Returns the sizes for the report.
    pub fn full() -> Self {
        Self { rounds: 100, layer_bytes: 100_000_000, sandboxes: 20 }
    }

    /// Returns small sizes, to check that it runs.
    pub fn smoke() -> Self {
        Self { rounds: 1, layer_bytes: 1_000_000, sandboxes: 2 }
    }
}

/// Measures on a new sandbox service. Returns no figures on a machine that cannot join layers.
pub async fn measure(sizes: &Sizes) -> Vec<Figure> {
    let testbed = Testbed::start(&Servers::Shared, Options::default()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let machine = Machine::of(&testbed, directory.path()).await;
    let has_images = client::joins_layers(machine.client()).await;
    let figures = if has_images { machine.figures(sizes).await } else { vec![] };
    testbed.end().await;
    figures
}

/// A sandbox service, seen from outside.
struct Machine<'a> {
    client: Client,
    data: PathBuf,
    /// Where archives are made.
    directory: &'a Path,
    tenant: String,
    project: String,
}

/// A layer in its two forms.
struct LayerArchive {
    /// As the registry has it.
    blob: Vec<u8>,
    diff_id: String,
}

impl<'a> Machine<'a> {
    async fn of(testbed: &Testbed, directory: &'a Path) -> Self {
        Self {
            client: client::connect(&testbed.stack).await,
            data: testbed.stack.sandbox_data().to_owned(),
            directory,
            tenant: testbed.stack.api.tenant_id.clone(),
            project: testbed.stack.api.project_id.clone(),
        }
    }

    fn client(&self) -> Client {
        self.client.clone()
    }

    async fn figures(&self, sizes: &Sizes) -> Vec<Figure> {
        let image = self.image().await;
        let mut figures = self.starts(&image, sizes.rounds).await;
        figures.push(self.unpack(sizes.layer_bytes).await);
        figures.push(self.look_ups(&image, sizes.rounds).await);
        figures.push(self.shared_disk(&image, sizes.sandboxes).await);
        figures
    }

    /// Starts sandboxes on the machine's own programs and in the image, alternately.
    async fn starts(&self, image: &v1::Image, rounds: usize) -> Vec<Figure> {
        let mut kinds = [(None, Samples::default()), (Some(image), Samples::default())];
        for _ in 0..rounds {
            for (image, samples) in &mut kinds {
                let session = self.open(*image).await;
                samples.push(self.first_command(&session).await);
                self.close(&session).await;
            }
        }
        let [(_, own), (_, layered)] = kinds;
        let added = "what the image adds, median";
        let added = Figure::difference(added, &layered, &own, 50, Target::AtMost(1.0));
        vec![
            Figure::times("first command, the machine's programs", own, Target::None),
            Figure::times(format!("first command, an image of {LAYERS} layers"), layered, Target::None),
            added,
        ]
    }

    /// Sends a layer of files that cannot be compressed.
    async fn unpack(&self, bytes: usize) -> Figure {
        let large = self.directory.join("large");
        fs::create_dir_all(&large).expect("a directory");
        for number in 0..10 {
            let mut random = vec![0; bytes / 10];
            fs::File::open("/dev/urandom")
                .and_then(|mut source| std::io::Read::read_exact(&mut source, &mut random))
                .expect("random bytes");
            fs::write(large.join(number.to_string()), random).expect("a file");
        }
        let layer = self.archive(&layers::files(&large, &["."]).expect("a layer"));
        let megabytes = layer.blob.len() as f64 / 1e6;
        let begun = Instant::now();
        self.put(layer).await;
        let seconds = begun.elapsed().as_secs_f64() / megabytes * 100.0;
        let quantity = Quantity { value: seconds, unit: "s" };
        Figure::number("a layer arrives, per 100 MB of its blob", quantity, 1, Target::AtMost(1.0))
    }

    /// Asks for an environment that the machine has.
    async fn look_ups(&self, image: &v1::Image, rounds: usize) -> Figure {
        self.build(image).await;
        let mut samples = Samples::default();
        for _ in 0..rounds {
            samples.push(self.build(image).await);
        }
        Figure::times("an environment is there already", samples, Target::AtMost(20.0))
    }

    /// Runs sandboxes in one image at the same time.
    async fn shared_disk(&self, image: &v1::Image, count: usize) -> Figure {
        let before = disk_bytes(&self.data);
        let mut sessions = vec![];
        for _ in 0..count {
            let session = self.open(Some(image)).await;
            self.first_command(&session).await;
            sessions.push(session);
        }
        let each = disk_bytes(&self.data).saturating_sub(before) as f64 / count as f64 / 1e6;
        for session in sessions {
            self.close(&session).await;
        }
        let quantity = Quantity { value: each, unit: "MB" };
        Figure::number("disk of each sandbox in one image", quantity, count, Target::AtMost(1.0))
    }

    /// Has the machine take an image in.
    async fn image(&self) -> v1::Image {
        let mut archives = vec![layers::programs(&[SHELL]).expect("a layer")];
        for number in 1..LAYERS {
            archives.push(layers::file(&number.to_string(), "layer").expect("a layer"));
        }
        let mut diff_ids = vec![];
        for archive in archives {
            let layer = self.archive(&archive);
            diff_ids.push(layer.diff_id.clone());
            self.put(layer).await;
        }
        v1::Image { diff_ids, env: vec![] }
    }

    fn archive(&self, bytes: &[u8]) -> LayerArchive {
        let tar = self.directory.join("archive.tar");
        fs::write(&tar, bytes).expect("an archive");
        let blob = Command::new("gzip").args(["-1", "--stdout"]).arg(&tar).output().expect("gzip").stdout;
        LayerArchive { blob, diff_id: digest(bytes) }
    }

    async fn put(&self, layer: LayerArchive) {
        let header = v1::LayerHeader {
            digest: digest(&layer.blob),
            diff_id: layer.diff_id,
            media_type: "application/vnd.oci.image.layer.v1.tar+gzip".to_owned(),
            is_proof: false,
            tenant_id: String::new(),
        };
        let pieces = layer.blob.chunks(rpc::CHUNK_BYTES).map(|piece| LayerPart::Data(piece.to_vec()));
        let parts = std::iter::once(LayerPart::Header(header)).chain(pieces);
        let parts: Vec<_> = parts.map(|part| v1::PutLayerRequest { part: Some(part) }).collect();
        self.client().put_layer(futures::stream::iter(parts)).await.expect("a layer");
    }

    async fn build(&self, image: &v1::Image) -> Duration {
        let request = v1::BuildEnvironmentRequest {
            fence: Some(self.new_fence()),
            project_id: self.project.clone(),
            image: Some(image.clone()),
            script: SETUP.to_owned(),
            hosts: vec![],
            secrets: vec![],
        };
        let begun = Instant::now();
        let mut items = self.client().build_environment(request).await.expect("a build").into_inner();
        while let Some(item) = items.message().await.expect("the build") {
            if let Some(v1::build_environment_response::Item::End(end)) = item.item {
                assert_eq!(end.code, "", "{}", end.message);
            }
        }
        begun.elapsed()
    }

    fn new_fence(&self) -> v1::Fence {
        let session_id = format!("ses_{}", uuid::Uuid::now_v7().simple());
        v1::Fence { tenant_id: self.tenant.clone(), session_id, epoch: 1, ..v1::Fence::default() }
    }

    /// Opens a workspace without files.
    async fn open(&self, image: Option<&v1::Image>) -> v1::Fence {
        let fence = self.new_fence();
        let header =
            v1::WorkspaceHeader { fence: Some(fence.clone()), image: image.cloned(), ..Default::default() };
        let part = v1::OpenWorkspaceRequest { part: Some(Part::Header(header)) };
        self.client().open_workspace(futures::stream::iter([part])).await.expect("a workspace");
        fence
    }

    /// Runs a command in a session that has no sandbox yet.
    async fn first_command(&self, fence: &v1::Fence) -> Duration {
        let (fence, exec_id) = (Some(fence.clone()), "first".to_owned());
        let request = v1::StartExecRequest {
            fence: fence.clone(),
            exec_id: exec_id.clone(),
            command: "true".to_owned(),
            ..v1::StartExecRequest::default()
        };
        let begun = Instant::now();
        self.client().start_exec(request).await.expect("a command");
        let attach = v1::AttachExecRequest { fence, exec_id, from_offset_bytes: 0 };
        let mut items = self.client().attach_exec(attach).await.expect("the output").into_inner();
        while let Some(item) = items.message().await.expect("the output") {
            if let Some(Item::Exit(exit)) = item.item {
                assert_eq!(exit.code, 0, "{exit:?}");
            }
        }
        begun.elapsed()
    }

    async fn close(&self, fence: &v1::Fence) {
        let request = v1::CloseWorkspaceRequest { fence: Some(fence.clone()) };
        self.client().close_workspace(request).await.expect("a closed workspace");
    }
}

/// What the files below a directory take on the disk.
fn disk_bytes(directory: &Path) -> u64 {
    let du = Command::new("du").args(["-s", "--block-size=1"]).arg(directory).output().expect("du").stdout;
    let text = String::from_utf8_lossy(&du);
    text.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).expect("the bytes of a directory")
}
