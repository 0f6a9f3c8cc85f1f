//! The door of one session to the secrets of its setup or install. The program that runs the script connects, reads the values, and hands them to the script
//! as variables. So a value goes from this process into the sandbox of that script, and into no other. Rules without secrets give nothing: those under
//! which programs of the session run.

use super::{error::EgressError, key::DoorKey};
use crate::{
    credential,
    secrets::{
        error::EnvelopeError,
        vault::{OpenedSecret, SecretUse, Vault, VaultError},
    },
};
use chassis::telemetry::AUDIT;
use domain::{
    egress::{
        secret_servers::SecretDestination,
        secrets::{SECRET_VARIABLE_BYTES_MAX, encode, encode_passing_refusal, encode_refusal},
    },
    ids::ProjectId,
    limits::ENVIRONMENT_SECRETS_MAX,
    secret::SecretName,
    session::environment::is_variable_name,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

/// What settings call it, for the audit.
const SETTING: &str = "environment.secrets";
/// Time in which a client must take its answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The secrets that a script gets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SecretAccess {
    project: Option<ProjectId>,
    variables: BTreeMap<String, SecretName>,
}

/// Why a script gets no secrets. The text is for the person who reads its log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum SecretRefusal {
    #[error(
        "the door of this session gives no secrets now: only a setup or an install that has just begun gets some (secrets_refused)"
    )]
    Refused,
    #[error(
        "there is no secret {0}, which {SETTING} names; set it with `flotilla secret set {0}` (secret_not_found)"
    )]
    Missing(SecretName),
    #[error(
        "the value of the secret {0} is not valid UTF-8, or it contains a zero byte; set it again with `flotilla secret set {0}` (secret_value_invalid)"
    )]
    Invalid(SecretName),
    #[error(
        "the stored secret {0} does not open; set it again with `flotilla secret set {0}` (secret_damaged)"
    )]
    Damaged(SecretName),
    #[error("{0}. A script gets only secrets that were set without --for (secret_not_for_server)")]
    NotFor(String),
    #[error("the secret {0} cannot be opened; try again later (secret_unavailable)")]
    Unavailable(SecretName),
}

impl SecretAccess {
    /// Reads the name of the secret of each variable. Secrets of the project come before those of the tenant.
    ///
    /// # Errors
    /// `argument_invalid`, `secret_name_invalid`.
    pub(super) fn parse(
        project: Option<ProjectId>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, EgressError> {
        if variables.len() > ENVIRONMENT_SECRETS_MAX {
            return Err(EgressError::ArgumentInvalid("a script gets at most 16 secrets"));
        }
        let read = |(variable, secret): (&String, &String)| {
            if !is_variable_name(variable) || variable.len() > SECRET_VARIABLE_BYTES_MAX {
                return Err(EgressError::ArgumentInvalid(
                    "the name of a variable is invalid, or it is longer than 128 bytes",
                ));
            }
            Ok((variable.clone(), secret.parse()?))
        };
        Ok(Self { project, variables: variables.iter().map(read).collect::<Result<_, _>>()? })
    }
}

#[derive(Debug)]
pub(super) struct SecretDoor {
    key: DoorKey,
    access: Mutex<Arc<SecretAccess>>,
    vault: Arc<Vault>,
}

impl SecretDoor {
    /// A door that gives nothing yet.
    pub(super) fn new(key: DoorKey, vault: Arc<Vault>) -> Self {
        Self { key, access: Mutex::default(), vault }
    }

    /// Gives these secrets, from the next connection on.
    pub(super) fn allow(&self, access: SecretAccess) {
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Answers one connection, or leaves it at `closing`. A client that got no whole answer asks again.
    pub(super) async fn serve(&self, mut client: impl AsyncWrite + Unpin, closing: &CancellationToken) {
        let answered = async {
            let answer = Zeroizing::new(match self.open().await {
                Ok(opened) => encode(opened.iter().map(|(name, value)| (&**name, &***value))),
                Err(refusal @ (SecretRefusal::Refused | SecretRefusal::Unavailable(_))) => {
                    encode_passing_refusal(&refusal.to_string())
                }
                Err(refusal) => encode_refusal(&refusal.to_string()),
            });
            // An error means that the client left.
            drop(timeout(ANSWER, client.write_all(&answer)).await);
            drop(client.shutdown().await);
        };
        closing.run_until_cancelled(answered).await;
    }

    /// Opens the secrets. The door keeps nothing: a change or a deletion of a secret counts from the next connection on.
    async fn open(&self) -> Result<BTreeMap<String, Zeroizing<String>>, SecretRefusal> {
        let access = Arc::clone(&self.access.lock().unwrap_or_else(PoisonError::into_inner));
        let SecretAccess { project, variables } = &*access;
        if variables.is_empty() {
            return Err(SecretRefusal::Refused);
        }
        let (mut values, mut versions) = (BTreeMap::new(), vec![]);
        for (variable, name) in variables {
            let script = SecretUse { purpose: SETTING, destination: SecretDestination::Script };
            let found = self.vault.find(self.key.tenant, project.as_ref(), name, script).await;
            let found = found.map_err(|error| {
                if matches!(error, VaultError::NotFor { .. }) {
                    return SecretRefusal::NotFor(error.to_string());
                }
                let is_damaged = matches!(
                    error,
                    VaultError::Envelope(EnvelopeError::Damaged | EnvelopeError::OtherKey)
                );
                if !error.is_of_key_service() {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, secret.name = %name, "a secret of a setup or an install cannot be opened");
                }
                let refusal = if is_damaged { SecretRefusal::Damaged } else { SecretRefusal::Unavailable };
                refusal(name.clone())
            })?;
            let OpenedSecret { version, value } =
                found.ok_or_else(|| SecretRefusal::Missing(name.clone()))?;
            let text = credential::text(&value).filter(|text| !text.contains('\0'));
            let text = text.ok_or_else(|| SecretRefusal::Invalid(name.clone()))?;
            values.insert(variable.clone(), Zeroizing::new(text.to_owned()));
            versions.push(format!("{name}@{version}"));
        }
        tracing::info!(
            target: AUDIT,
            { tenant.id = %self.key.tenant, session.id = %self.key.session, secrets = versions.join(" ") },
            "a setup or an install got secrets"
        );
        Ok(values)
    }
}
