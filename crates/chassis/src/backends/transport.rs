//! How calls of the shared servers travel. Their URLs have passwords, and what they answer is of all tenants, so a URL that leads off this machine must ask for TLS, unless
//! the operator says that something else encrypts the connections.

use crate::grpc::Plaintext;
use domain::egress::host::is_this_machine;
use reqwest::Url;

/// Where the connections to the shared servers may travel without TLS.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TransportConfig {
    /// Where connections to Postgres, Redis and NATS may travel without TLS: `network` says that a mesh or a private link encrypts them. Default: only on this machine.
    #[arg(long, env = "FLOTILLA_BACKENDS_PLAINTEXT", value_enum, value_name = "WHERE")]
    pub backends_plaintext: Option<Plaintext>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedServer {
    Postgres,
    Redis,
    Nats,
}

impl SharedServer {
    /// What a URL must have.
    fn remedy(self) -> &'static str {
        match self {
            Self::Postgres => "add sslmode=verify-full to its URL, and sslrootcert=FILE for a CA of your own",
            Self::Redis => "let its URL begin with rediss://",
            Self::Nats => "let its URL begin with tls://",
        }
    }

    /// Whether a URL leads off this machine and asks for no TLS. The client of the server reports a text that is not a URL.
    fn is_open(self, text: &str) -> bool {
        let has_scheme = self != Self::Nats || text.contains("://");
        let url = if has_scheme { Url::parse(text) } else { Url::parse(&format!("nats://{text}")) };
        let Ok(url) = url else { return false };
        let value = |names: &[&str]| {
            let pairs = url.query_pairs().filter(|(name, _)| names.contains(&&**name));
            pairs.last().map(|(_, value)| value.into_owned())
        };
        // Clients of Postgres take a host from the query, too, which may be the directory of a socket.
        let host = value(&["host", "hostaddr"]).filter(|_| self == Self::Postgres);
        let host = host.or_else(|| url.host_str().map(str::to_owned)).unwrap_or_default();
        let host = host.replace("%2F", "/").replace("%2f", "/");
        if host.is_empty() || host.starts_with('/') || is_this_machine(&host) {
            return false;
        }
        match self {
            Self::Postgres => {
                let mode = value(&["sslmode", "ssl-mode"]).unwrap_or_default();
                !["require", "verify-ca", "verify-full"].contains(&mode.as_str())
            }
            Self::Redis => url.scheme() != "rediss",
            Self::Nats => !["tls", "wss"].contains(&url.scheme()),
        }
    }
}

impl TransportConfig {
    /// Returns what is wrong with these servers, each with its setting and its URL; one sentence each. No sentence shows a URL.
    pub fn problems<'a>(
        &self,
        servers: impl IntoIterator<Item = (SharedServer, &'static str, &'a str)>,
    ) -> Vec<String> {
        if self.backends_plaintext == Some(Plaintext::Network) {
            return vec![];
        }
        let open = servers.into_iter().filter(|(server, _, url)| server.is_open(url));
        let told = open.map(|(server, setting, _)| {
            format!(
                "{setting} leads to another machine without TLS: {}, or have a mesh encrypt the connection and say so with FLOTILLA_BACKENDS_PLAINTEXT=network",
                server.remedy()
            )
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_another_machine_needs_tls_or_a_word_of_the_operator() {
        use SharedServer::{Nats, Postgres, Redis};
        for (server, url, is_open) in [
            (Postgres, "postgres://app:hunter2@127.0.0.1:5432/flotilla", false),
            (Postgres, "postgres://app:hunter2@localhost/flotilla", false),
            (Postgres, "postgres://app:hunter2@[::1]/flotilla", false),
            (Postgres, "postgres:///flotilla?host=/run/postgresql", false),
            (Postgres, "postgres://app@%2Frun%2Fpostgresql/flotilla", false),
            (Postgres, "postgres://app:hunter2@db.acme.dev/flotilla", true),
            (Postgres, "postgres://app:hunter2@10.0.0.1/flotilla?sslmode=prefer", true),
            (Postgres, "postgres://app@localhost/flotilla?host=db.acme.dev", true),
            (Postgres, "postgres://localhost/flotilla?hostaddr=10.0.0.1", true),
            (Postgres, "postgres://app:hunter2@db.acme.dev/flotilla?sslmode=require&sslmode=disable", true),
            (Postgres, "postgres://app:hunter2@db.acme.dev/flotilla?sslmode=verify-full", false),
            (Redis, "redis://:hunter2@127.0.0.1/", false),
            (Redis, "redis://:hunter2@redis/", true),
            (Redis, "rediss://:hunter2@redis/", false),
            (Redis, "unix:///run/redis.sock", false),
            (Nats, "nats://flotilla:hunter2@localhost:4222", false),
            (Nats, "nats://flotilla:hunter2@nats.acme.dev", true),
            (Nats, "ws://flotilla:hunter2@nats.acme.dev", true),
            (Nats, "tls://flotilla:hunter2@nats.acme.dev", false),
            (Nats, "nats.acme.dev:4222", true),
        ] {
            let told = TransportConfig::default().problems([(server, "FLOTILLA_X_URL", url)]);
            assert_eq!(told.len(), usize::from(is_open), "{url}: {told:?}");
            let names_it = |text: &String| text.starts_with("FLOTILLA_X_URL ") && text.contains("=network");
            assert!(told.iter().all(|text| names_it(text) && !text.contains("hunter2")), "{told:?}");
            let accepted = TransportConfig { backends_plaintext: Some(Plaintext::Network) };
            assert_eq!(accepted.problems([(server, "FLOTILLA_X_URL", url)]), Vec::<String>::new());
        }
    }
}
