//! The image of a workspace: resolved once, recorded, and brought to the sandbox machine layer by layer.

use super::{patience::with_patience, progress::OpeningProgress, stored::from_store};
use crate::process::{broker, deps::Deps, sandbox::Identity};
use domain::{
    ids::ProjectId,
    session::{
        environment::merged_variables,
        image::{Image, ImageLayer},
    },
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rpc::v1::{self, ErrorCode, put_layer_request::Part};
use settings::ImageSetting;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Layers of one image that are brought at the same time: one is unpacked while another one arrives.
const LAYERS_AT_ONCE: usize = 3;
/// Pieces of a layer that are read ahead of the sandbox, each with at most 256 KiB: 1 MiB for one layer.
const PIECES_AHEAD: usize = 4;

pub(super) struct WorkspaceImage<'a> {
    pub(super) deps: &'a Deps,
    pub(super) identity: &'a Identity,
    pub(super) project: &'a ProjectId,
    /// What the settings say now. It counts only for a workspace without a record.
    pub(super) setting: Option<&'a ImageSetting>,
    /// Counts the layers that come.
    pub(super) progress: &'a OpeningProgress,
}

/// A layer that must be brought.
#[derive(Debug, Clone)]
struct MissingLayer {
    layer: ImageLayer,
    /// Whether the tenant has not shown yet that it has the layer: its bytes must come even if the machine has it.
    is_proof: bool,
}

impl WorkspaceImage<'_> {
    /// Brings the image to the sandbox machine, and gives it as the machine knows it. `None`: the workspace has none.
    ///
    /// # Errors
    /// Those of the broker and of the sandbox; `store_unavailable`; `broker_unavailable`.
    ///
    /// Dropped midway: a layer is on the machine whole or not at all.
    pub(super) async fn bring(&self) -> Result<Option<v1::Image>, Status> {
        let (store, tenant) = (&self.deps.store, self.identity.tenant);
        let recorded = from_store(|| store.find_image(tenant, &self.identity.workspace)).await?;
        let image = match (recorded, self.setting) {
            (Some(image), _) => image,
            (None, Some(setting)) => {
                let image = self.resolve(setting).await?;
                from_store(|| store.record_image(tenant, &self.identity.workspace, &image)).await?
            }
            (None, None) => return Ok(None),
        };
        self.bring_layers(&image).await.map(Some)
    }

    /// Brings the layers of the image of the settings, for a session that may come. Nothing is recorded: that session resolves the image itself.
    ///
    /// # Errors
    /// As [`WorkspaceImage::bring`].
    ///
    /// Dropped midway: as [`WorkspaceImage::bring`].
    pub(super) async fn bring_ahead(&self) -> Result<(), Status> {
        let Some(setting) = self.setting else { return Ok(()) };
        let image = self.resolve(setting).await?;
        self.bring_layers(&image).await.map(drop)
    }

    /// Brings the layers that the machine lacks, and those that the tenant has not shown. Returns the image as the machine knows it.
    async fn bring_layers(&self, image: &Image) -> Result<v1::Image, Status> {
        let (store, tenant) = (&self.deps.store, self.identity.tenant);
        let diff_ids: Vec<String> = image.layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let known = v1::Image { diff_ids: diff_ids.clone(), env: image.env.clone() };
        let request = v1::CheckLayersRequest { image: Some(known.clone()) };
        let check = self.deps.sandbox.call(|mut client| {
            let request = request.clone();
            async move { client.check_layers(request).await }
        });
        let missing: BTreeSet<String> = check.await?.missing_diff_ids.into_iter().collect();
        let shown = from_store(|| store.list_shown_layers(tenant, &diff_ids)).await?;
        // A layer that comes twice is brought once.
        let wanted: BTreeMap<String, MissingLayer> = image
            .layers
            .iter()
            .map(|layer| (layer, !shown.contains(&layer.diff_id)))
            .filter(|(layer, is_proof)| *is_proof || missing.contains(&layer.diff_id))
            .map(|(layer, is_proof)| (layer.diff_id.clone(), MissingLayer { layer: layer.clone(), is_proof }))
            .collect();
        self.progress.expect_layers(wanted.len());
        let brought = stream::iter(wanted.into_values())
            .map(|layer| self.bring_layer(image, layer))
            .buffer_unordered(LAYERS_AT_ONCE);
        brought.try_collect::<()>().await?;
        Ok(known)
    }

    async fn resolve(&self, setting: &ImageSetting) -> Result<Image, Status> {
        let request = v1::ResolveImageRequest {
            tenant_id: self.identity.tenant.to_string(),
            project_id: self.project.to_string(),
            reference: setting.reference.clone(),
            credential: setting.credential.clone().unwrap_or_default(),
        };
        let broker = self.deps.broker.as_ref().ok_or_else(no_broker)?;
        let resolved = with_patience(|| broker.resolve_image(request.clone())).await?;
        let layers = resolved.layers.into_iter().map(|layer| ImageLayer {
            blob_digest: layer.blob_digest,
            media_type: layer.media_type,
            diff_id: layer.diff_id,
        });
        let env = resolved.config.unwrap_or_default().env;
        let credential = setting.credential.clone();
        Ok(Image { reference: resolved.reference, credential, layers: layers.collect(), env })
    }

    async fn bring_layer(&self, image: &Image, missing: MissingLayer) -> Result<(), Status> {
        with_patience(|| self.transfer(image, &missing)).await?;
        if missing.is_proof {
            let (store, tenant) = (&self.deps.store, self.identity.tenant);
            from_store(|| store.note_shown_layer(tenant, &missing.layer.diff_id)).await?;
        }
        self.progress.note_layer();
        Ok(())
    }

    async fn transfer(&self, image: &Image, missing: &MissingLayer) -> Result<(), Status> {
        let MissingLayer { layer, is_proof } = missing;
        let request = v1::PullLayerRequest {
            tenant_id: self.identity.tenant.to_string(),
            project_id: self.project.to_string(),
            reference: image.reference.clone(),
            credential: image.credential.clone().unwrap_or_default(),
            blob_digest: layer.blob_digest.clone(),
        };
        let broker = self.deps.broker.as_ref().ok_or_else(no_broker)?;
        let pieces = broker.pull_layer(request).await?;
        let header = v1::LayerHeader {
            digest: layer.blob_digest.clone(),
            diff_id: layer.diff_id.clone(),
            media_type: layer.media_type.clone(),
            is_proof: *is_proof,
            tenant_id: self.identity.tenant.to_string(),
        };
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let mut client = self.deps.sandbox.client();
        let put = client.put_layer(ReceiverStream::new(receiver));
        let (pulled, put) = tokio::join!(carry(header, pieces, sender), put);
        // The sandbox refuses a layer that ends early; the broker knows why.
        pulled?;
        put.map(drop)
    }
}

/// Adds the variables of the settings to those of the image.
pub(super) fn with_variables(
    image: Option<v1::Image>,
    variables: &BTreeMap<String, String>,
) -> Option<v1::Image> {
    if variables.is_empty() {
        return image;
    }
    // Without layers, the machine's own programs get the variables.
    let mut image = image.unwrap_or_default();
    image.env = merged_variables(&image.env, variables);
    Some(image)
}

/// Carries a layer from the broker to the sandbox.
async fn carry(
    header: v1::LayerHeader,
    mut pieces: Streaming<v1::PullLayerResponse>,
    to: mpsc::Sender<v1::PutLayerRequest>,
) -> Result<(), Status> {
    let mut next = Some(Part::Header(header));
    while let Some(part) = next {
        // The sandbox has answered: it has the layer, or refuses it.
        if to.send(v1::PutLayerRequest { part: Some(part) }).await.is_err() {
            return Ok(());
        }
        next = pieces.message().await.map_err(broker::away)?.map(|piece| Part::Data(piece.data));
    }
    Ok(())
}

fn no_broker() -> Status {
    let text = "the settings name an image, and this deployment has no broker that could pull it";
    rpc::status::error(ErrorCode::ImagesUnsupported, text)
}
