//! The three servers of a stack as commands with their settings. [`crate::stack`] or [`crate::shared`] runs them.

use crate::{error::Error, home, home::Home, options::Options, programs::Programs};
use nix::sys::signal::Signal;
use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// One server as a command.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub role: &'static str,
    /// Program and arguments, with the change of user and the parent-death signal in front.
    pub argv: Vec<OsString>,
    pub log: PathBuf,
    pub address: SocketAddr,
    /// The signal for a quick and clean shutdown.
    pub stop: Signal,
}

/// Starts with new ports: another process may take a port between its choice and its use. Then the start fails.
const TRIES_MAX: u32 = 3;

/// All servers of a stack, in starting order, and their addresses.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub recipes: Vec<Recipe>,
    pub postgres_url: String,
    pub redis_url: String,
    pub nats_url: String,
}

/// Starts servers, and starts them again with other ports if one of them ends.
///
/// # Errors
/// Those of the last start.
pub(crate) async fn try_ports<T, F>(mut start: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut tries = 1;
    loop {
        match start().await {
            Err(error @ Error::Ended { .. }) if tries < TRIES_MAX => {
                tracing::warn!("{error}; retrying with other ports");
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Writes the servers' settings with free ports, and creates the Postgres instance if it does not exist.
///
/// Blocks for about half a second when it creates the instance.
pub(crate) fn make(home: &Home, programs: &Programs, options: Options) -> Result<Plan, Error> {
    let [postgres, redis, nats] = free_ports()?;
    let password = &home.kept.password;
    for role in ["postgres", "redis", "nats"] {
        home.own_dir(&home.server_dir(role))?;
    }
    let data = home.server_dir("postgres").join("data");
    // initdb writes this file last: if it is missing, an earlier initdb did not finish.
    if !data.join("global/pg_control").exists() {
        home::remove_dir(&data)?;
        initdb(home, programs, &data)?;
    }
    end_leftover(&data);
    home.own_file(&data.join("flotilla.conf"), &postgres_settings(postgres, options))?;
    let redis_file = home.server_dir("redis").join("redis.conf");
    home.own_file(&redis_file, &redis_settings(redis, password, &home.server_dir("redis")))?;
    let nats_file = home.server_dir("nats").join("nats.conf");
    home.own_file(&nats_file, &nats_settings(nats, password))?;

    let config = format!("config_file={}", data.join("flotilla.conf").display());
    let recipe = |role, program: &Path, arguments: &[OsString], address, stop| {
        let mut argv = drop_to(home, programs, Some(stop));
        argv.push(program.into());
        argv.extend_from_slice(arguments);
        Recipe { role, argv, log: home.log(role), address, stop }
    };
    let recipes = vec![
        recipe(
            "postgres",
            &programs.postgres,
            &["-D".into(), data.into(), "-c".into(), config.into()],
            postgres,
            // "Fast" shutdown: ends sessions and writes a checkpoint. SIGTERM would wait for every client.
            Signal::SIGINT,
        ),
        recipe("redis", &programs.redis, &[redis_file.into()], redis, Signal::SIGTERM),
        recipe("nats", &programs.nats, &["-c".into(), nats_file.into()], nats, Signal::SIGTERM),
    ];
    Ok(Plan {
        recipes,
        postgres_url: format!("postgres://postgres:{password}@{postgres}/postgres"),
        redis_url: format!("redis://:{password}@{redis}/"),
        nats_url: format!("nats://flotilla:{password}@{nats}"),
    })
}

/// Returns the words that start a program as the servers' user. With a signal, the program receives it when its
/// launcher dies.
fn drop_to(home: &Home, programs: &Programs, death: Option<Signal>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![programs.setpriv.clone().into()];
    if let Some(owner) = &home.owner {
        argv.extend([format!("--reuid={}", owner.name).into(), format!("--regid={}", owner.gid).into()]);
        argv.push("--clear-groups".into());
    }
    if let Some(signal) = death {
        argv.push(format!("--pdeathsig={}", signal.as_str()).into());
    }
    argv.push("--".into());
    argv
}

fn initdb(home: &Home, programs: &Programs, data: &Path) -> Result<(), Error> {
    let password_file = home.server_dir("postgres").join("password");
    home.own_file(&password_file, &home.kept.password)?;
    let mut argv = drop_to(home, programs, None);
    argv.push(programs.initdb.clone().into());
    let result = Command::new(&argv[0])
        .args(&argv[1..])
        // Passwords travel in clear text, but only over loopback. SCRAM would cost each client thousands of hash
        // rounds.
        .args([
            "--username=postgres",
            "--auth=password",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--pgdata",
        ])
        .arg(data)
        .arg(format!("--pwfile={}", password_file.display()))
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("run", &programs.initdb));
    fs::remove_file(&password_file).map_err(Error::io("remove", &password_file))?;
    let output = result?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Initdb { output: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

/// Binds three ports at once, so that they differ, and frees them for the servers.
fn free_ports() -> Result<[SocketAddr; 3], Error> {
    let take = || -> std::io::Result<_> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok((listener.local_addr()?, listener))
    };
    let taken = || -> std::io::Result<_> { Ok([take()?, take()?, take()?]) };
    Ok(taken().map_err(Error::io("take ports on", "127.0.0.1"))?.map(|(address, _listener)| address))
}

/// Ends a Postgres that a killed launcher left behind. The caller holds the lock of the data directory, so no other
/// process uses it.
fn end_leftover(data: &Path) {
    let file = data.join("postmaster.pid");
    let Some(pid) = fs::read_to_string(&file).ok().and_then(|text| text.lines().next()?.trim().parse().ok())
    else {
        return;
    };
    // The system may have reused the pid. Only a process that was started for this directory is ours.
    let is_ours = || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|word| Path::new(word) == data)
    };
    if is_ours() {
        tracing::warn!("ending the Postgres (pid {pid}) that an earlier launcher left behind");
        let process = nix::unistd::Pid::from_raw(pid);
        for (signal, polls) in [(Signal::SIGINT, 500), (Signal::SIGQUIT, 300), (Signal::SIGKILL, 200)] {
            // An error means that the process is gone, which the loop notices.
            let _ = nix::sys::signal::kill(process, signal);
            for _ in 0..polls {
                if !is_ours() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    // Postgres itself reports an error with the reason.
    drop(fs::remove_file(&file));
}

fn postgres_settings(address: SocketAddr, options: Options) -> String {
    let durable = if options.fsync { "on" } else { "off" };
    // To check a password against its SCRAM hash, the server repeats thousands of hash rounds for each connection. Tests make
    // thousands of connections.
    let hash = if options.fsync { "scram-sha-256" } else { "md5" };
    // A connection plans each statement five times for its values before it considers a plan for all values. Connections of tests
    // end long before that is worth its time, and their databases end before anything could be vacuumed.
    let (plans, vacuum) = if options.fsync { ("auto", "on") } else { ("force_generic_plan", "off") };
    format!(
        "listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = {connections}
shared_buffers = 128MB
# Its files end with the directory, also after a kill; those in /dev/shm would stay.
dynamic_shared_memory_type = mmap
fsync = {durable}
full_page_writes = {durable}
# After each checkpoint the first change of a page writes all of it: compressed, that is a fraction. Without fsync nothing reaches
# the disk, and compression is only work.
wal_compression = {durable}
jit = off
timezone = 'UTC'
lc_messages = 'C'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d '
password_encryption = '{hash}'
plan_cache_mode = {plans}
autovacuum = {vacuum}
# A killed worker must not keep row locks, and no session may hold back vacuum.
idle_in_transaction_session_timeout = 10s
statement_timeout = 15s
client_connection_check_interval = 2s
tcp_keepalives_idle = 5
tcp_keepalives_interval = 5
tcp_keepalives_count = 3
tcp_user_timeout = 10s
",
        port = address.port(),
        connections = options.postgres_connections,
    )
}

fn redis_settings(address: SocketAddr, password: &str, dir: &Path) -> String {
    format!(
        "bind 127.0.0.1
port {port}
requirepass {password}
dir {dir}
daemonize no
databases 512
# Rebuilt from Postgres: nothing to keep on disk, and nothing that may be dropped in secret.
save \"\"
appendonly no
maxmemory 512mb
maxmemory-policy noeviction
",
        port = address.port(),
        dir = dir.display(),
    )
}

fn nats_settings(address: SocketAddr, password: &str) -> String {
    format!(
        "listen: \"{address}\"
authorization {{ user: flotilla, password: \"{password}\" }}
max_payload: 8MB
max_pending: 64MB
write_deadline: \"10s\"
"
    )
}
