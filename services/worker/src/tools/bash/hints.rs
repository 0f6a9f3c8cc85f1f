//! What a model reads below the output of a command that failed at a wall of the sandbox: which setting opens it. Programs say it in many words, and seldom
//! name the wall.

use domain::{egress::no_network::NO_NETWORK_WORDS, text};

/// Bytes at the end of an output that count although the command succeeded.
const END_BYTES: usize = 1_024;

struct Hint {
    /// What programs print at the wall, in lower case.
    words: &'static [&'static str],
    text: &'static str,
}

static HINTS: [Hint; 6] = [
    Hint {
        words: NO_NETWORK_WORDS,
        text: "The sandbox reaches only the hosts that `environment.network.allow` in the project's settings lists, so \
               retrying does not help: ask for the hosts with the tool `network` if you have it, or else tell people which you need. \
               A program that ignores the variable https_proxy reaches none of them.",
    },
    Hint {
        // Of LeakSanitizer, strace and gdb.
        words: &[
            "leaksanitizer has encountered a fatal error",
            "ptrace_traceme: operation not permitted",
            "ptrace(ptrace_traceme, ...): operation not permitted",
            "ptrace(ptrace_seize",
            "warning: ptrace: operation not permitted",
            "could not trace the inferior process",
        ],
        text: "Programs trace each other only where the project's settings have `environment.allow_ptrace`: tell people if you need it. \
               Programs with AddressSanitizer run without it with ASAN_OPTIONS=detect_leaks=0, and those with -fsanitize=leak with LSAN_OPTIONS=detect_leaks=0.",
    },
    Hint {
        // Of unshare, bwrap, Chromium and podman.
        words: &[
            "unshare failed: operation not permitted",
            "no permissions to create new namespace",
            "no permissions to create a new namespace",
            "no usable sandbox!",
            "cannot clone: operation not permitted",
        ],
        text: "Programs make user namespaces only where the project's settings have `environment.allow_user_namespaces`: tell people if \
               you need it. Chromium runs without it with --no-sandbox.",
    },
    Hint {
        words: &[
            "docker: command not found",
            "docker: not found",
            "docker-compose: command not found",
            "podman: command not found",
            "cannot connect to the docker daemon",
            "unix:///var/run/docker.sock",
            "/var/run/docker.sock: connect",
            "no such file or directory: 'docker'",
            "error while fetching server api version",
            "could not find a valid docker environment",
        ],
        text: "A sandbox has no Docker: containers cannot be started here. An image with the programs belongs in `environment.image`, and the \
               services that tests need (a database, a queue) can be installed by `environment.setup` and started by `environment.start` \
               or in the background: tell people which you need.",
    },
    Hint {
        words: &[
            "sudo: command not found",
            "sudo: not found",
            "no such file or directory: 'sudo'",
            "sudo: a password is required",
            "sudo: a terminal is required",
            "sudo: effective uid is not 0",
            "which prevents sudo from running as root",
            "is not in the sudoers file",
            "must be owned by uid 0 and have the setuid bit set",
            "su: authentication failure",
        ],
        text: ROOT,
    },
    Hint {
        // Of apt, dpkg, dnf, yum, apk and pacman.
        words: &[
            "are you root?",
            "e: unable to lock directory /var/lib/apt",
            "dpkg: error: requested operation requires superuser privilege",
            "has to be run with superuser privileges",
            "you need to be root to perform this command",
            "unable to lock database: permission denied",
            "error: you cannot perform this operation unless you are root",
            "apt-get: command not found",
        ],
        text: ROOT,
    },
];

const ROOT: &str = "No command of a session is root, and the system's directories are read-only. Packages of the system are installed by \
                    `environment.setup` of the project's settings or of .flotilla/config.yaml, which runs as root when the environment is \
                    built: tell people which you need. Packages of a language can be installed below /workspace or in $HOME.";

/// The hints for an output. The exit code proves little: in `pip install x | tail` it is that of `tail`. If it is 0, only the end of the output counts,
/// because a command may also print a file that has such words.
pub(super) fn of(exit_code: i32, output: &str) -> impl Iterator<Item = &'static str> {
    let output = if exit_code == 0 { text::tail(output, END_BYTES) } else { output };
    let output = output.to_ascii_lowercase();
    let fits = move |hint: &Hint| hint.words.iter().any(|word| output.contains(word));
    let mut told = "";
    // `sudo apt-get` fails at two walls that have the same hint.
    HINTS.iter().filter(move |hint| fits(hint)).map(|hint| hint.text).filter(move |text| {
        let is_new = *text != told;
        told = *text;
        is_new
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_that_fails_at_a_wall_gets_the_hint_of_that_wall() {
        for (setting, lines) in [
            (
                "environment.network.allow",
                &[
                    "Could not resolve host: x",
                    "dial tcp: lookup x: no such host",
                    "E: Temporary failure resolving 'x'",
                    "curl: (56) CONNECT tunnel failed, response 403",
                    "OSError: Tunnel connection failed: 403 Forbidden",
                    "Error: getaddrinfo ENOTFOUND registry.npmjs.org",
                    "npm error code ENOTFOUND",
                ][..],
            ),
            (
                "environment.allow_ptrace",
                &[
                    "==7==LeakSanitizer has encountered a fatal error.",
                    "strace: test_ptrace_get_syscall_info: PTRACE_TRACEME: Operation not permitted",
                    "strace: attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted",
                    "warning: ptrace: Operation not permitted",
                ],
            ),
            (
                "environment.allow_user_namespaces",
                &[
                    "unshare: unshare failed: Operation not permitted",
                    "bwrap: No permissions to create a new namespace, likely because the kernel does not allow it.",
                    "[7:7:FATAL:zygote_host_impl_linux.cc(128)] No usable sandbox! Update your kernel",
                ],
            ),
            (
                "environment.image",
                &[
                    "bash: line 1: docker: command not found",
                    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                    "java.lang.IllegalStateException: Could not find a valid Docker environment. Please see logs",
                ],
            ),
            (
                "environment.setup",
                &[
                    "bash: line 1: sudo: command not found",
                    "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
                    "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\nE: Unable to acquire the dpkg frontend lock, are you root?",
                    "sudo: command not found\nE: Unable to lock directory /var/lib/apt/lists/",
                    "ERROR: Unable to lock database: Permission denied",
                ],
            ),
        ] {
            for line in lines {
                let hints: Vec<_> = of(1, line).collect();
                assert_eq!(hints.len(), 1, "{line}");
                assert!(hints.first().unwrap().contains(setting), "{line}");
            }
        }
        for line in [
            "error: expected one of `!` or `::`",
            "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
            "ModuleNotFoundError: No module named 'nope'",
            "docker-compose.yml: syntax error",
            "the user must use sudo",
        ] {
            assert_eq!(of(1, line).count(), 0, "{line}");
        }
    }
}
