//! The settings of each child of `flotilla up`. They are passed as environment variables, because every user of the
//! machine can see arguments.

use anyhow::{Context as _, Result};
use domain::text;
use std::{
    ffi::OsString,
    fs,
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Random bytes of a secret of this stack.
const SECRET_BYTES: usize = 24;
/// The file of the token with which the gateway calls the sandbox.
pub(super) const SANDBOX_GATEWAY_TOKEN: &str = "sandbox-gateway-token";
/// The file of the token with which workers call the sandbox.
pub(super) const SANDBOX_WORKER_TOKEN: &str = "sandbox-worker-token";
/// The file of the token with which the gateway calls the broker.
pub(super) const GATEWAY_TOKEN: &str = "broker-gateway-token";
/// The file of the token with which workers call the broker.
pub(super) const WORKER_TOKEN: &str = "broker-worker-token";
/// The file of the key that seals secrets.
const BROKER_KEY: &str = "broker-key";
/// The file of the operator's key.
pub(super) const OPERATOR_KEY: &str = "operator-key";

/// The doors of sessions to the network, below the directory of the stack. The sandbox service and the broker share them.
const EGRESS: &str = "egress";

/// The directories of pushes, below the directory of the stack.
const PUSH: &str = "push";

/// The address of the gateway, and the operator's key.
pub(super) struct GatewayAccess<'a> {
    pub listen: SocketAddr,
    pub operator_key: &'a str,
}

/// The directory of the stack, and the path of this program.
pub(super) struct StackPaths {
    pub data: PathBuf,
    pub program: PathBuf,
}

/// The addresses that workers and gateway connect to.
pub(super) struct Backends {
    pub app_url: String,
    pub system_url: String,
    pub redis_url: String,
    pub nats_url: String,
    pub sandbox_url: String,
    pub sandbox_tokens: CallerTokens,
    pub broker_url: String,
    pub broker_tokens: CallerTokens,
}

/// The tokens of the callers of a service. Each is only for the calls of its caller.
pub(super) struct CallerTokens {
    pub gateway: String,
    pub worker: String,
}

impl CallerTokens {
    /// As the service reads them.
    fn to_setting(&self) -> String {
        format!("gateway:{},worker:{}", self.gateway, self.worker)
    }
}

/// The tokens with which a process calls the others.
struct OwnTokens<'a> {
    sandbox: &'a str,
    broker: &'a str,
}

/// The command of a child.
pub(super) struct Spec {
    /// "worker-1": unique in the stack.
    pub name: String,
    pub role: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub env: Vec<(String, String)>,
    /// The variable with the address to listen on, for a restart.
    pub listen_variable: &'static str,
    /// Whether the child must not see this process's environment: it runs code that a model wrote, or needs none of the keys there.
    pub keeps_secrets_out: bool,
    pub ready_file: PathBuf,
    pub log: PathBuf,
}

pub(super) fn model(paths: &StackPaths, script: Option<&Path>) -> Spec {
    let mut spec = spec(paths, "model-script", "model-script", "FLOTILLA_MODEL_SCRIPT_LISTEN");
    if let Some(script) = script {
        spec.arguments.extend(["--script".into(), script.into()]);
    }
    spec
}

/// The sandbox service, which may lack the walls `without`. Its only credentials are the tokens of its callers.
pub(super) fn sandbox(paths: &StackPaths, tokens: &CallerTokens, without: &str) -> Spec {
    let mut spec = spec(paths, "sandbox", "sandbox", "FLOTILLA_SANDBOX_LISTEN");
    spec.keeps_secrets_out = true;
    let directory = paths.data.join("sandbox").display().to_string();
    spec.set("FLOTILLA_SANDBOX_DATA_DIRECTORY", directory);
    spec.set("FLOTILLA_SANDBOX_TOKENS", tokens.to_setting());
    spec.set("FLOTILLA_SANDBOX_EGRESS", paths.data.join(EGRESS).display().to_string());
    if !without.is_empty() {
        spec.set("FLOTILLA_SANDBOX_WITHOUT", without.to_owned());
    }
    spec
}

/// The broker. It reaches its own tables, and alone reads the key that seals secrets.
pub(super) fn broker(paths: &StackPaths, database_url: &str, tokens: &CallerTokens) -> Spec {
    let mut spec = spec(paths, "broker", "broker", "FLOTILLA_BROKER_LISTEN");
    spec.keeps_secrets_out = true;
    spec.set("FLOTILLA_BROKER_DATABASE_URL", database_url.to_owned());
    spec.set("FLOTILLA_BROKER_KEY_FILE", paths.data.join(BROKER_KEY).display().to_string());
    spec.set("FLOTILLA_BROKER_TOKENS", tokens.to_setting());
    spec.set("FLOTILLA_BROKER_EGRESS", paths.data.join(EGRESS).display().to_string());
    spec.set("FLOTILLA_BROKER_PUSH", paths.data.join(PUSH).display().to_string());
    // A developer's machine may lack git or a wall.
    spec.set("FLOTILLA_BROKER_PUSH_OPTIONAL", "true".to_owned());
    spec
}

/// Worker number `number`, with the file of its model providers if it exists.
pub(super) fn worker(paths: &StackPaths, backends: &Backends, number: u16, config: Option<&Path>) -> Spec {
    let mut spec = spec(paths, &format!("worker-{number}"), "worker", "FLOTILLA_WORKER_LISTEN");
    let (sandbox, broker) = (&backends.sandbox_tokens.worker, &backends.broker_tokens.worker);
    spec.connect(backends, &OwnTokens { sandbox, broker });
    spec.set("FLOTILLA_WORKER_NAME", format!("worker-{number}"));
    if let Some(config) = config {
        spec.set("FLOTILLA_CONFIG", config.display().to_string());
    }
    spec
}

/// The gateway, for prompts that name one of `models`.
pub(super) fn gateway(
    paths: &StackPaths,
    backends: &Backends,
    access: &GatewayAccess<'_>,
    models: &[String],
) -> Spec {
    let mut spec = spec(paths, "gateway", "gateway", "FLOTILLA_GATEWAY_LISTEN");
    let (sandbox, broker) = (&backends.sandbox_tokens.gateway, &backends.broker_tokens.gateway);
    spec.connect(backends, &OwnTokens { sandbox, broker });
    spec.set("FLOTILLA_GATEWAY_LISTEN", access.listen.to_string());
    spec.set("FLOTILLA_OPERATOR_KEY", access.operator_key.to_owned());
    spec.set("FLOTILLA_MODELS", models.join(","));
    spec
}

impl Spec {
    fn set(&mut self, name: &str, value: String) {
        self.env.push((name.to_owned(), value));
    }

    fn connect(&mut self, backends: &Backends, tokens: &OwnTokens<'_>) {
        let Backends { app_url, system_url, redis_url, nats_url, sandbox_url, broker_url, .. } = backends;
        self.set("FLOTILLA_BROKER_URL", broker_url.clone());
        self.set("FLOTILLA_BROKER_TOKEN", tokens.broker.to_owned());
        self.set("FLOTILLA_DATABASE_URL", app_url.clone());
        self.set("FLOTILLA_SYSTEM_DATABASE_URL", system_url.clone());
        self.set("FLOTILLA_REDIS_URL", redis_url.clone());
        self.set("FLOTILLA_NATS_URL", nats_url.clone());
        self.set("FLOTILLA_SANDBOX_URL", sandbox_url.clone());
        self.set("FLOTILLA_SANDBOX_TOKEN", tokens.sandbox.to_owned());
    }
}

fn spec(paths: &StackPaths, name: &str, role: &'static str, listen_variable: &'static str) -> Spec {
    Spec {
        name: name.to_owned(),
        role,
        program: paths.program.clone(),
        arguments: vec![role.into()],
        env: Vec::new(),
        listen_variable,
        keeps_secrets_out: false,
        ready_file: paths.data.join("run").join(format!("{name}.json")),
        log: paths.data.join("logs").join(format!("{name}.log")),
    }
}

/// Whether a child of this role that runs untrusted programs, or needs none of the keys in this environment, may see this variable.
pub(super) fn is_harmless(role: &str, name: &str) -> bool {
    let exact = [
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "FLOTILLA_LOG",
        "FLOTILLA_LOG_FORMAT",
        "SSL_CERT_FILE",
    ];
    // The service would take it for every call. It is for the gateway and the workers of another stack.
    if ["FLOTILLA_BROKER_TOKEN", "FLOTILLA_SANDBOX_TOKEN"].contains(&name) {
        return false;
    }
    let own = format!("FLOTILLA_{}_", role.to_ascii_uppercase());
    exact.contains(&name) || name.starts_with(&own) || name == "OTEL_EXPORTER_OTLP_ENDPOINT"
}

/// Returns a random secret that is stored in the file `name`, the same for every start in this data directory.
pub(super) fn secret(data: &Path, name: &str) -> Result<String> {
    let file = data.join(name);
    if let Ok(secret) = fs::read_to_string(&file)
        && secret.len() == 2 * SECRET_BYTES
    {
        return Ok(secret);
    }
    let mut bytes = [0_u8; SECRET_BYTES];
    let mut random = fs::File::open("/dev/urandom").context("open /dev/urandom")?;
    random.read_exact(&mut bytes).context("read /dev/urandom")?;
    let secret = text::hex(&bytes);
    crate::stack::private::write(&file, &secret)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_secret_is_random_kept_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = secret(one.path(), OPERATOR_KEY).unwrap();
        assert_eq!(secret(one.path(), OPERATOR_KEY).unwrap(), key);
        assert_ne!(secret(one.path(), SANDBOX_WORKER_TOKEN).unwrap(), key);
        assert_ne!(secret(other.path(), OPERATOR_KEY).unwrap(), key);
        let mode = fs::metadata(one.path().join(OPERATOR_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn gateway_and_workers_have_different_tokens_of_each_service() {
        let paths = StackPaths { data: PathBuf::from("/d"), program: PathBuf::from("/p") };
        let tokens = |service: &str| CallerTokens {
            gateway: format!("{service}-of-gateway"),
            worker: format!("{service}-of-worker"),
        };
        let value = |spec: &Spec, name: &str| {
            let found = spec.env.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        let broker = broker(&paths, "postgres://", &tokens("broker"));
        let sandbox = sandbox(&paths, &tokens("sandbox"), "");
        for (spec, service) in [(broker, "broker"), (sandbox, "sandbox")] {
            let variable = format!("FLOTILLA_{}_TOKEN", service.to_ascii_uppercase());
            let want = format!("gateway:{service}-of-gateway,worker:{service}-of-worker");
            assert_eq!(value(&spec, &format!("{variable}S")), Some(want));
            assert_eq!(value(&spec, &variable), None, "no token is for every call");
        }
        let none = String::new;
        let backends = Backends {
            app_url: none(),
            system_url: none(),
            redis_url: none(),
            nats_url: none(),
            sandbox_url: none(),
            sandbox_tokens: tokens("sandbox"),
            broker_url: none(),
            broker_tokens: tokens("broker"),
        };
        let access = GatewayAccess { listen: SocketAddr::from(([127, 0, 0, 1], 0)), operator_key: "key" };
        for (spec, token) in [
            (worker(&paths, &backends, 1, None), "of-worker"),
            (gateway(&paths, &backends, &access, &[]), "of-gateway"),
        ] {
            for service in ["sandbox", "broker"] {
                let variable = format!("FLOTILLA_{}_TOKEN", service.to_ascii_uppercase());
                assert_eq!(value(&spec, &variable), Some(format!("{service}-{token}")), "{}", spec.name);
            }
        }
    }

    #[test]
    fn the_sandbox_sees_no_credential_of_ours() {
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "FLOTILLA_API_KEY",
            "FLOTILLA_OPERATOR_KEY",
            "FLOTILLA_DATABASE_URL",
            "FLOTILLA_BROKER_TOKEN",
            "FLOTILLA_SANDBOX_TOKEN",
            "FLOTILLA_BROKER_DATABASE_URL",
            "AWS_SECRET_ACCESS_KEY",
        ] {
            assert!(!is_harmless("sandbox", name), "{name}");
        }
        assert!(is_harmless("sandbox", "FLOTILLA_SANDBOX_EGRESS_CA"));
        assert!(is_harmless("broker", "FLOTILLA_BROKER_NETWORKS"));
        assert!(!is_harmless("broker", "FLOTILLA_SANDBOX_TOKEN"));
        assert!(!is_harmless("broker", "FLOTILLA_BROKER_TOKEN"), "it would be for every call");
        let paths = StackPaths { data: PathBuf::from("/d"), program: PathBuf::from("/p") };
        let tokens = CallerTokens { gateway: "token".to_owned(), worker: "token".to_owned() };
        let spec = sandbox(&paths, &tokens, "cpu");
        assert!(spec.keeps_secrets_out);
        let names: Vec<_> = spec.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "FLOTILLA_SANDBOX_DATA_DIRECTORY",
                "FLOTILLA_SANDBOX_TOKENS",
                "FLOTILLA_SANDBOX_EGRESS",
                "FLOTILLA_SANDBOX_WITHOUT"
            ]
        );
    }
}
