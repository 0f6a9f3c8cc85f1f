//! The settings of the sandbox service.

use crate::walls::Wall;
use chassis::{
    grpc::{Plaintext, internal_port::InternalPort, tokens::Tokens},
    network::{proxy_address::ProxyAddress, proxy_exception::ProxyException},
    secret::Secret,
};
use clap::{builder::TypedValueParser, error::ErrorKind};
use domain::{egress::host::FixedHost, limits, session::environment::SandboxOptions};
use std::{ffi::OsStr, net::SocketAddr, path::PathBuf};

/// The default number of sandboxes alive at once in one service; each may use its whole memory limit. Beyond it: `sandbox_unavailable`.
const SANDBOXES_MAX: u32 = 256;
/// The default wait of a slow helper for its turn; milliseconds. Most clones and diffs before it have ended by then, and a caller that
/// still waits may try again.
const HELPER_WAIT_MS: u64 = 60_000;

/// A way to reach a git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GitScheme {
    /// `https://host/path`.
    Https,
    /// `ssh://user@host/path`. A sandbox has no key, so this works only with servers that ask for none.
    Ssh,
}

/// What runs the programs of sandboxes. Bubblewrap is around them in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    /// The kernel of the machine, behind filters of its calls.
    Bwrap,
    /// The kernel of gVisor. Programs do not reach that of the machine; calls of the kernel take longer, and a sandbox needs more memory.
    Runsc,
}

/// Whether the service makes control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ControlGroups {
    /// Where it may.
    Auto,
    /// Never: another program manages the groups of this machine.
    Off,
}

/// What programs of sandboxes may also do, where the settings of a session ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OptionOffer {
    /// Nothing.
    None,
    /// Trace each other.
    Ptrace,
    /// Make user namespaces. More of the kernel is then within reach of every tenant.
    UserNamespaces,
}

/// Reads the URL of the proxy for clones. A URL with a login is wrong, and the error that clap writes by itself would repeat it.
#[derive(Debug, Clone, Copy)]
struct GitProxyParser;

impl TypedValueParser for GitProxyParser {
    type Value = ProxyAddress;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<ProxyAddress, clap::Error> {
        value.to_string_lossy().trim().parse::<ProxyAddress>().map_err(|error| {
            let text =
                format!("FLOTILLA_SANDBOX_GIT_PROXY must be http://host:port, without a login: {error}");
            command.clone().error(ErrorKind::ValueValidation, text)
        })
    }
}

/// The settings of the sandbox service.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// Address of the gRPC port; port 0 takes a free one. Only workers and gateways may reach it. An address that is not loopback needs
    /// TLS or `plaintext`.
    #[arg(long, env = "FLOTILLA_SANDBOX_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Directory of workspaces and exec output; made if missing. One service per directory.
    #[arg(long, env = "FLOTILLA_SANDBOX_DATA_DIRECTORY", value_name = "DIRECTORY")]
    pub data_directory: PathBuf,
    /// The directory of the doors through which sessions reach the network. The broker of this machine has the same one as `FLOTILLA_BROKER_EGRESS`.
    /// Without it sessions have no network.
    #[arg(long, env = "FLOTILLA_SANDBOX_EGRESS", value_name = "DIRECTORY")]
    pub egress: Option<PathBuf>,
    /// PEM file with the certificates of all CAs that programs in sandboxes trust, for networks whose proxy signs for the hosts outside. Default: those
    /// of the image or of this machine, and those that each program brings along.
    #[arg(long, env = "FLOTILLA_SANDBOX_EGRESS_CA", value_name = "FILE")]
    pub egress_ca: Option<PathBuf>,
    /// PEM file with the certificate of the port, and those between it and the CA. New connections get a file that replaces it.
    #[arg(long, env = "FLOTILLA_SANDBOX_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of that certificate.
    #[arg(long, env = "FLOTILLA_SANDBOX_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Where calls may travel without TLS of this port: `network` says that a mesh or a private link encrypts them. Default: only on this
    /// machine.
    #[arg(long, env = "FLOTILLA_SANDBOX_PLAINTEXT", value_enum, value_name = "WHERE")]
    pub plaintext: Option<Plaintext>,
    /// Token that any caller may present as `authorization: Bearer …`; at least 16 bytes.
    #[arg(long, env = "FLOTILLA_SANDBOX_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<Secret<String>>,
    /// Tokens of callers by name, separated by commas: `gateway:…,worker:…`. Each is only for the calls of its caller. A name may come twice while one token replaces
    /// the other.
    #[arg(
        long,
        env = "FLOTILLA_SANDBOX_TOKENS",
        value_delimiter = ',',
        hide_env_values = true,
        value_name = "NAME:TOKEN"
    )]
    pub tokens: Vec<Secret<String>>,
    /// Walls that this machine lacks and that you do without, separated by commas; default: none. The service does not start if
    /// another one is missing.
    #[arg(long, env = "FLOTILLA_SANDBOX_WITHOUT", value_delimiter = ',', value_enum, value_name = "WALLS")]
    pub without: Vec<Wall>,
    /// Whether the service makes control groups for memory, processes and CPU.
    #[arg(long, env = "FLOTILLA_SANDBOX_CONTROL_GROUPS", default_value = "auto", value_enum)]
    pub control_groups: ControlGroups,
    /// What sandboxes may also do if the settings of a session ask for it, separated by commas.
    #[arg(
        long,
        env = "FLOTILLA_SANDBOX_OPTIONS",
        value_delimiter = ',',
        value_enum,
        default_value = "ptrace",
        value_name = "OPTIONS"
    )]
    pub options: Vec<OptionOffer>,
    /// The `flotilla-init` program; default: next to this program or in a directory above it.
    #[arg(long, env = "FLOTILLA_SANDBOX_INIT", value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// The bubblewrap program, a name in PATH or a path.
    #[arg(long, env = "FLOTILLA_SANDBOX_BWRAP", default_value = "bwrap", value_name = "FILE")]
    pub bwrap: PathBuf,
    /// What runs the programs of sandboxes.
    #[arg(long, env = "FLOTILLA_SANDBOX_RUNTIME", default_value = "bwrap", value_enum)]
    pub runtime: Runtime,
    /// gVisor's program, a name in PATH or a path. Only the runtime `runsc` needs it.
    #[arg(long, env = "FLOTILLA_SANDBOX_RUNSC", default_value = "runsc", value_name = "FILE")]
    pub runsc: PathBuf,
    /// Directories of this machine below which `file://` URLs may be cloned, separated by commas; default: none.
    #[arg(long, env = "FLOTILLA_SANDBOX_FILE_ROOTS", value_delimiter = ',', value_name = "DIRECTORIES")]
    pub file_roots: Vec<PathBuf>,
    /// Remote schemes that may be cloned, separated by commas.
    #[arg(
        long,
        env = "FLOTILLA_SANDBOX_GIT_SCHEMES",
        value_delimiter = ',',
        default_value = "https",
        value_enum
    )]
    pub git_schemes: Vec<GitScheme>,
    /// Clone also from servers whose address is not public (a git server inside your network).
    #[arg(long, env = "FLOTILLA_SANDBOX_GIT_PRIVATE_NETWORKS")]
    pub git_private_networks: bool,
    /// Addresses of servers of git that no server of names knows, for clones without a credential: `git.acme.dev=10.1.2.3:443`. The port is that of the
    /// URLs. May be repeated.
    #[arg(long, env = "FLOTILLA_SANDBOX_GIT_HOSTS", value_delimiter = ',', value_name = "HOST=ADDRESS")]
    pub git_hosts: Vec<FixedHost>,
    /// The proxy of your network through which clones without a credential go: `http://proxy.acme.dev:3128`, without a login, because the sandbox service
    /// holds no secret. The proxy resolves the names of the servers, so it must itself refuse hosts inside your network. Clones over ssh and from the
    /// hosts of `git_hosts` do not use it. Default: these clones connect directly.
    #[arg(
        long,
        env = "FLOTILLA_SANDBOX_GIT_PROXY",
        hide_env_values = true,
        value_parser = GitProxyParser,
        value_name = "URL"
    )]
    pub git_proxy: Option<ProxyAddress>,
    /// Hosts that these clones reach without the proxy, separated by commas: a host (`git.acme.dev`), all hosts below a name (`.acme.dev`), or a network for
    /// hosts that are addresses (`10.0.0.0/8`). The service resolves and checks them as without a proxy. Default: none.
    #[arg(long, env = "FLOTILLA_SANDBOX_GIT_PROXY_EXCEPT", value_delimiter = ',', value_name = "HOST")]
    pub git_proxy_except: Vec<ProxyException>,
    /// PEM file with the certificates of all CAs that clones without a credential trust; every user must be able to read it. Default: those of this machine.
    #[arg(long, env = "FLOTILLA_SANDBOX_GIT_CA", value_name = "FILE")]
    pub git_ca: Option<PathBuf>,
    /// Memory of one sandbox, bytes; at least 64 MiB. A command that needs more is killed, and its result says so.
    #[arg(long, env = "FLOTILLA_SANDBOX_MEMORY_BYTES", default_value_t = 2 << 30, value_name = "BYTES")]
    pub memory_bytes: u64,
    /// Processes and threads of one sandbox; at least 32. A command that needs more fails, and its result says so. Beyond it:
    /// `process_limit`.
    #[arg(long, env = "FLOTILLA_SANDBOX_PROCESSES", default_value_t = 512, value_name = "COUNT")]
    pub processes: u32,
    /// CPU of one sandbox in hundredths of a core, where cgroups are available; at least 10. Processes that want more run slower.
    #[arg(long, env = "FLOTILLA_SANDBOX_CPU_PERCENT", default_value_t = 200, value_name = "PERCENT")]
    pub cpu_percent: u32,
    /// Files of one workspace, bytes; also the limit of a single file. At least 16 MiB. Beyond it: `limit_disk` or `disk_full`.
    #[arg(long, env = "FLOTILLA_SANDBOX_DISK_BYTES", default_value_t = 5 << 30, value_name = "BYTES")]
    pub disk_bytes: u64,
    /// Files, directories and links of one workspace, a file with several names as often as it has names. At least 1000. Beyond it:
    /// `limit_disk`.
    #[arg(long, env = "FLOTILLA_SANDBOX_INODES", default_value_t = 1_000_000, value_name = "COUNT")]
    pub inodes: u64,
    /// Space that stays free on the disk of the data directory, bytes; below it nothing new begins. At least 16 MiB.
    /// The default is what running commands can write before they are noticed, several times over. Beyond it: `disk_full`.
    #[arg(long, env = "FLOTILLA_SANDBOX_RESERVE_BYTES", default_value_t = 2 << 30, value_name = "BYTES")]
    pub reserve_bytes: u64,
    /// Layers of images, and what setups and installs left, bytes; at least 16 MiB. One tenant gets three quarters. Those that no workspace uses make room for new
    /// ones: of the tenant that has most, longest unused first. Beyond it: `images_full`.
    #[arg(long, env = "FLOTILLA_SANDBOX_IMAGE_BYTES", default_value_t = 50 << 30, value_name = "BYTES")]
    pub image_bytes: u64,
    /// Mirrors of repositories, bytes; at least 16 MiB, or 0 for none. One tenant gets three quarters. Those that no clone reads make room for new ones: of the tenant
    /// that has most, longest unused first. A mirror that does not fit is not kept, and each session transfers its repository.
    #[arg(long, env = "FLOTILLA_SANDBOX_MIRROR_BYTES", default_value_t = 20 << 30, value_name = "BYTES")]
    pub mirror_bytes: u64,
    /// How long the service keeps the files of a clone that no session opens; milliseconds. At least 100. The next call clones again.
    #[arg(long, env = "FLOTILLA_SANDBOX_DRAFT_MS", default_value_t = 1_800_000, value_name = "MS")]
    pub draft_ms: u64,
    /// Longest run of a script that sets an environment up; milliseconds. At least 100. Beyond it: `setup_timeout`.
    #[arg(long, env = "FLOTILLA_SANDBOX_SETUP_MS", default_value_t = 1_200_000, value_name = "MS")]
    pub setup_ms: u64,
    /// Files that such a script may leave, bytes; at least 1 MiB. Beyond it: `setup_disk_full`.
    #[arg(long, env = "FLOTILLA_SANDBOX_SETUP_BYTES", default_value_t = 10 << 30, value_name = "BYTES")]
    pub setup_bytes: u64,
    /// Longest run of a script that installs what a repository needs; milliseconds. At least 100. Beyond it: `install_timeout`.
    #[arg(long, env = "FLOTILLA_SANDBOX_INSTALL_MS", default_value_t = 1_200_000, value_name = "MS")]
    pub install_ms: u64,
    /// Longest run of the script that starts a sandbox, without what it leaves in the background; milliseconds. At least 100. A longer one is ended, and
    /// the session goes on.
    #[arg(long, env = "FLOTILLA_SANDBOX_START_MS", default_value_t = 60_000, value_name = "MS")]
    pub start_ms: u64,
    /// Size of /tmp and of the home directory in a sandbox, bytes each; they count as memory, so each gets a quarter of it
    /// at most. At least 1 MiB. Writing more fails in the program.
    #[arg(long, env = "FLOTILLA_SANDBOX_TMP_BYTES", default_value_t = 512 << 20, value_name = "BYTES")]
    pub tmp_bytes: u64,
    /// A sandbox without a running exec and without a call ends after this; its background processes end with it.
    /// Milliseconds.
    #[arg(long, env = "FLOTILLA_SANDBOX_IDLE_MS", default_value_t = limits::SANDBOX_IDLE_MS, value_name = "MS")]
    pub idle_ms: u64,
    /// Sandboxes alive at once; each may use its whole memory. One tenant gets three quarters of them. Beyond it idle ones are ended
    /// early, and calls wait up to ten seconds. Beyond it: `sandbox_unavailable`.
    #[arg(long, env = "FLOTILLA_SANDBOX_LIVE_MAX", default_value_t = SANDBOXES_MAX, value_name = "COUNT")]
    pub live_max: u32,
    /// Longest wait of a clone, diff, export or removal for its turn among eight, of which one tenant gets three; milliseconds. At least
    /// 100. Beyond it: `helpers_busy`.
    #[arg(long, env = "FLOTILLA_SANDBOX_HELPER_WAIT_MS", default_value_t = HELPER_WAIT_MS, value_name = "MS")]
    pub helper_wait_ms: u64,
    /// First user id of sandboxes when the service runs as root; default: the first free ones from 200000 on, and always
    /// the same in one data directory. No other user of the machine may have these ids, and inside a user namespace they
    /// must be mapped.
    #[arg(long, env = "FLOTILLA_SANDBOX_UID_BASE", value_name = "UID")]
    pub uid_base: Option<u32>,
    /// User ids of sandboxes. Each workspace takes one, lowest first. One tenant gets three quarters of them. Beyond it:
    /// `sandbox_unavailable`.
    #[arg(long, env = "FLOTILLA_SANDBOX_UIDS", default_value_t = 65_536, value_name = "COUNT")]
    pub uids: u32,
}

impl Config {
    /// What sandboxes may also do.
    pub fn offer(&self) -> SandboxOptions {
        SandboxOptions {
            allow_ptrace: self.options.contains(&OptionOffer::Ptrace),
            allow_user_namespaces: self.options.contains(&OptionOffer::UserNamespaces),
        }
    }

    /// The port.
    pub fn port(&self) -> InternalPort {
        InternalPort {
            service: "FLOTILLA_SANDBOX",
            listen: self.listen,
            tls_certificate: self.tls_certificate.clone(),
            tls_key: self.tls_key.clone(),
            plaintext: self.plaintext,
            token: self.token.clone(),
            tokens: self.tokens.clone(),
        }
    }

    /// Returns the tokens of callers, and every problem of the settings, one sentence each.
    pub fn check(&self) -> (Tokens, Vec<String>) {
        let (tokens, mut problems) = self.port().check();
        let mut need = |fine: bool, problem: &str| {
            if !fine {
                problems.push(problem.to_owned());
            }
        };
        need(
            self.git_ca.as_ref().is_none_or(|file| file.is_absolute() && file.is_file()),
            "FLOTILLA_SANDBOX_GIT_CA must be the whole path of a file",
        );
        need(self.memory_bytes >= 64 << 20, "FLOTILLA_SANDBOX_MEMORY_BYTES must be at least 67108864");
        need(self.processes >= 32, "FLOTILLA_SANDBOX_PROCESSES must be at least 32");
        need(self.cpu_percent >= 10, "FLOTILLA_SANDBOX_CPU_PERCENT must be at least 10");
        need(self.disk_bytes >= 16 << 20, "FLOTILLA_SANDBOX_DISK_BYTES must be at least 16777216");
        need(
            (1_000..=100_000_000).contains(&self.inodes),
            "FLOTILLA_SANDBOX_INODES must be between 1000 and 100000000",
        );
        need(self.reserve_bytes >= 16 << 20, "FLOTILLA_SANDBOX_RESERVE_BYTES must be at least 16777216");
        need(self.image_bytes >= 16 << 20, "FLOTILLA_SANDBOX_IMAGE_BYTES must be at least 16777216");
        need(
            self.mirror_bytes == 0 || self.mirror_bytes >= 16 << 20,
            "FLOTILLA_SANDBOX_MIRROR_BYTES must be 0 or at least 16777216",
        );
        need(self.draft_ms >= 100, "FLOTILLA_SANDBOX_DRAFT_MS must be at least 100");
        need(self.setup_ms >= 100, "FLOTILLA_SANDBOX_SETUP_MS must be at least 100");
        need(self.setup_bytes >= 1 << 20, "FLOTILLA_SANDBOX_SETUP_BYTES must be at least 1048576");
        need(self.install_ms >= 100, "FLOTILLA_SANDBOX_INSTALL_MS must be at least 100");
        need(self.start_ms >= 100, "FLOTILLA_SANDBOX_START_MS must be at least 100");
        need(self.tmp_bytes >= 1 << 20, "FLOTILLA_SANDBOX_TMP_BYTES must be at least 1048576");
        need((1..=10_000).contains(&self.live_max), "FLOTILLA_SANDBOX_LIVE_MAX must be between 1 and 10000");
        need(self.helper_wait_ms >= 100, "FLOTILLA_SANDBOX_HELPER_WAIT_MS must be at least 100");
        need(self.idle_ms >= 10, "FLOTILLA_SANDBOX_IDLE_MS must be at least 10");
        need(
            self.uid_base.is_none_or(|uid| (1_000..=0x7fff_0000).contains(&uid)),
            "FLOTILLA_SANDBOX_UID_BASE must be between 1000 and 2147418112",
        );
        need((1..=65_536).contains(&self.uids), "FLOTILLA_SANDBOX_UIDS must be between 1 and 65536");
        (tokens, problems)
    }
}
