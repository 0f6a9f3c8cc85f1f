//! Who calls: an API key names a tenant, the operator's key names none and may manage all. Keys are found and compared by their
//! SHA-256; those that are wrong are counted (`attempts`).

pub(crate) mod attempts;
pub(crate) mod client;

use crate::state::State;
use attempts::Attempt;
use bus::queue::Share;
use domain::ids::TenantId;
use rand::RngExt as _;
use rpc::status::{error, invalid};
use sha2::{Digest as _, Sha256};
use std::{net::IpAddr, time::Instant};
use store::tenant::tenants::Tenant;
use tonic::{Code, Request, Status, metadata::MetadataMap};

/// Begins every API key, so that scanners for leaked secrets find it.
const KEY_PREFIX: &str = "flk_";
/// Random characters of a key: 190 bits.
const KEY_CHARS: usize = 32;
/// Characters of a key that are shown in lists.
const PREFIX_CHARS: usize = 12;
/// Names the tenant of a call with the operator's key; with a tenant's key it may repeat that tenant.
const TENANT_HEADER: &str = "x-flotilla-tenant";

/// Somebody who may act for a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub(crate) tenant: TenantId,
    /// What its key is called; `operator` for the operator's.
    pub(crate) name: String,
    /// What the tenant may have of the workers.
    pub(crate) share: Share,
}

/// A key that was just made.
pub(crate) struct NewKey {
    pub(crate) prefix: String,
    pub(crate) secret: String,
    pub(crate) sha256: [u8; 32],
}

impl NewKey {
    pub(crate) fn make() -> Self {
        let secret = format!("{KEY_PREFIX}{}", random_text());
        Self { prefix: secret[..PREFIX_CHARS].to_owned(), sha256: Sha256::digest(&secret).into(), secret }
    }
}

/// Random letters and digits.
pub(crate) fn random_text() -> String {
    let mut rng = rand::rng();
    std::iter::repeat_with(|| char::from(rng.sample(rand::distr::Alphanumeric))).take(KEY_CHARS).collect()
}

impl State {
    /// Finds out for whom a call is made.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a valid key; INVALID_ARGUMENT when the operator names no tenant; RESOURCE_EXHAUSTED
    /// `too_many_attempts` after too many wrong keys; UNAVAILABLE.
    pub(crate) async fn principal<T>(&self, request: &Request<T>) -> Result<Principal, Status> {
        // From another way in, which found it out. Nothing that comes over the wire gets there.
        if let Some(principal) = request.extensions().get::<Principal>() {
            return Ok(principal.clone());
        }
        let named = request.metadata().get(TENANT_HEADER).and_then(|value| value.to_str().ok());
        let key = bearer(request.metadata())?;
        self.principal_of(key, named, client::of(request.extensions())).await
    }

    /// As [`State::principal`], by the key alone, which came from `client`; with the operator's key for the tenant that is `named`.
    ///
    /// # Errors
    /// As [`State::principal`].
    pub(crate) async fn principal_of(
        &self,
        key: &str,
        named: Option<&str>,
        client: Option<IpAddr>,
    ) -> Result<Principal, Status> {
        let attempt = Attempt::new(key, client);
        self.attempts.check(&attempt, Instant::now())?;
        if self.is_operator(&attempt) {
            self.attempts.succeeded(&attempt);
            let tenant = named.ok_or_else(|| {
                invalid(
                    "tenant_missing",
                    format!("the operator's key needs the tenant's id in the header {TENANT_HEADER}"),
                )
            })?;
            let tenant =
                tenant.parse().map_err(|_| invalid("tenant_invalid", "the tenant's id is a UUID"))?;
            let tenant = self.store.get_tenant(tenant).await.map_err(crate::grpc::from_store)?;
            return Ok(Principal { tenant: tenant.id, name: "operator".to_owned(), share: share(&tenant) });
        }
        let found = self.store.find_key(&attempt.sha256).await.map_err(crate::grpc::from_store)?;
        let (tenant, name) = found.ok_or_else(|| {
            self.attempts.failed(&attempt, Instant::now());
            error(
                Code::Unauthenticated,
                "key_unknown",
                "the API key is unknown or was revoked; ask for a new one",
            )
        })?;
        self.attempts.succeeded(&attempt);
        if named.is_some_and(|named| named.parse() != Ok(tenant.id)) {
            return Err(error(Code::NotFound, "tenant_not_found", "the key belongs to another tenant"));
        }
        Ok(Principal { tenant: tenant.id, name, share: share(&tenant) })
    }

    /// Refuses everybody but the operator.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED, or RESOURCE_EXHAUSTED `too_many_attempts`.
    pub(crate) fn operator<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let attempt = Attempt::new(bearer(request.metadata())?, client::of(request.extensions()));
        self.attempts.check(&attempt, Instant::now())?;
        if self.is_operator(&attempt) {
            self.attempts.succeeded(&attempt);
            return Ok(());
        }
        // A tenant's key is no guess at the operator's.
        if !self.attempts.knows(&attempt) {
            self.attempts.failed(&attempt, Instant::now());
        }
        Err(error(Code::PermissionDenied, "operator_only", "only the operator's key may do this"))
    }

    fn is_operator(&self, attempt: &Attempt) -> bool {
        let operator = self.operator_sha256.as_ref();
        operator.is_some_and(|known| chassis::secret::constant_time_eq(known, &attempt.sha256))
    }
}

fn share(tenant: &Tenant) -> Share {
    Share { running_max: tenant.running_max, weight: tenant.weight }
}

fn bearer(metadata: &MetadataMap) -> Result<&str, Status> {
    let header = metadata.get("authorization").and_then(|value| value.to_str().ok());
    header.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(|| {
        error(
            Code::Unauthenticated,
            "key_missing",
            "send the API key in the header `authorization: Bearer KEY`",
        )
    })
}
