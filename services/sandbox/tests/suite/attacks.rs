//! Attacks from inside, each with the expected refusal. A probe that never ran cannot pass: the comparison includes its
//! output.

use crate::harness::{Session, fresh};
use std::net::TcpListener;

async fn refused(session: &Session, command: &str, refusal: &str) {
    let outcome = session.run(&format!("echo canary; {{ {command} ; }} 2>&1; echo \"code $?\"")).await;
    let inner = outcome
        .output
        .strip_prefix("canary\n")
        .unwrap_or_else(|| panic!("{command} did not run: {outcome:?}"));
    assert!(inner.contains(refusal), "{command}: wanted {refusal:?} in {inner:?}");
    assert!(!inner.ends_with("code 0\n"), "{command} worked: {inner:?}");
}

#[tokio::test]
async fn a_command_cannot_reach_the_files_of_the_machine() {
    let (directory, machine, session) = fresh(&[]).await;
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let other = machine.empty_session().await;
    other.write("theirs", b"theirs").await.unwrap();
    let theirs = directory
        .path()
        .join("data/ws")
        .join(other.tenant.replace('-', ""))
        .join(&other.id)
        .join("tree/theirs");
    assert!(theirs.exists());
    for path in [
        secret.display().to_string(),
        theirs.display().to_string(),
        "/etc/shadow".to_owned(),
        "/root".to_owned(),
    ] {
        refused(&session, &format!("cat {path}"), "No such file").await;
        refused(&session, &format!("ln -sf {path} l; cat l"), "No such file").await;
        refused(&session, &format!("cat /proc/self/root{path}"), "No such file").await;
        refused(&session, &format!("cat /proc/1/root{path}"), "Permission denied").await;
    }
    refused(&session, "ls /oldroot", "No such file").await;
    refused(&session, "ls /newroot", "No such file").await;
    refused(&session, "touch /usr/x", "Read-only file system").await;
    refused(&session, "touch /x", "Read-only file system").await;
    refused(&session, "echo x > /etc/passwd", "Read-only file system").await;
    refused(&session, "touch /run/sbx/out/x", "Read-only file system").await;
    refused(&session, "ln /usr/bin/id h", "Invalid cross-device link").await;
    refused(&session, "mknod sda b 8 0", "Operation not permitted").await;
    refused(&session, "ls /dev/kvm /dev/vda /dev/fuse /dev/mem", "No such file").await;
    refused(&session, "echo '|/workspace/x' > /proc/sys/kernel/core_pattern", "Permission denied").await;
    // Hidden where the kernel has them.
    let hidden = ["sysrq-trigger", "kcore", "kallsyms", "keys", "loadavg", "diskstats", "cmdline"];
    for path in hidden.map(|name| format!("/proc/{name}")) {
        assert_eq!(session.sh(&format!("cat {path} 2>/dev/null | head -c 10 | wc -c")).await, "0", "{path}");
    }
    refused(&session, "mount -t cgroup none /tmp", "must be superuser").await;
    refused(&session, "ls /sys/fs/cgroup", "No such file").await;
    assert_eq!(session.sh("ls /tmp /dev/shm /home/agent | wc -l").await, "5");
}

#[tokio::test]
async fn a_command_cannot_reach_the_processes_of_the_machine() {
    let (_directory, machine, session) = fresh(&[]).await;
    let other = machine.empty_session().await;
    other.start(other.command("theirs", "exec -a visible-marker sleep 1000")).await.unwrap();
    other.sh("until pgrep -f visible-marker; do :; done").await;
    refused(&session, "grep -al visible-marke[r] /proc/[0-9]*/cmdline", "code 1").await;
    refused(&session, &format!("kill -0 {}", std::process::id()), "No such process").await;
    refused(&session, "cat /proc/1/environ", "Permission denied").await;
    refused(&session, "exec 9<>/proc/1/mem", "Permission denied").await;
    refused(&session, "ls /proc/1/fd/", "Permission denied").await;
    assert_eq!(session.sh("env | grep -ic -e secret -e token -e cargo || true").await, "0");
    refused(&session, "kill -KILL 1; sleep 0.05; echo alive; false", "alive").await;
    refused(&session, "cat <&3", "Bad file descriptor").await;
    let status = session.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t '").await;
    let none = "0000000000000000";
    assert_eq!(
        status,
        format!(
            "CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2"
        )
    );
}

#[tokio::test]
async fn a_command_cannot_gain_privileges() {
    let (_directory, _machine, session) = fresh(&[]).await;
    refused(&session, "unshare -Ur id", "Operation not permitted").await;
    refused(&session, "unshare -n id", "Operation not permitted").await;
    refused(&session, "nsenter -t 1 -m id", "Permission denied").await;
    refused(&session, "bwrap --ro-bind / / id", "No permissions").await;
    refused(&session, "mount -t tmpfs none /tmp", "must be superuser").await;
    refused(&session, "mount --bind /usr /tmp", "must be superuser").await;
    refused(&session, "mount -o remount,rw /", "must be superuser").await;
    refused(&session, "umount /proc", "umount failed").await;
    refused(&session, "su -c id", "immediate abort").await;
    refused(&session, "chown root /workspace", "Invalid argument").await;
    refused(&session, "cp /usr/bin/id s; chmod 6755 s; ./s | grep -c 'uid=0'", "0").await;
    assert_eq!(
        session.sh("[ $(nice -n -20 nice 2>/dev/null) = $(nice) ] && echo unchanged").await,
        "unchanged"
    );
    refused(&session, "chrt -f 99 true", "Operation not permitted").await;
}

/// System calls by number, made by perl, which every Debian has: name, number on x86-64, arguments, expected errno.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn system_calls_that_are_not_on_the_list_are_refused() {
    let (_directory, _machine, session) = fresh(&[]).await;
    for (name, call, errno) in [
        ("ptrace TRACEME", "101, 0, 0, 0, 0", 1),
        ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0", 1),
        ("pidfd_getfd", "438, 0, 0, 0", 1),
        ("kcmp", "312, 1, 1, 0, 0, 0", 1),
        ("io_uring_setup", "425, 8, 0", 1),
        ("keyctl", "250, 0, 0", 1),
        ("add_key", "248, 0, 0, 0, 0, 0", 1),
        ("bpf", "321, 0, 0, 0", 1),
        ("perf_event_open", "298, 0, 0, 0, 0, 0", 1),
        ("userfaultfd", "323, 0", 1),
        ("open_by_handle_at", "304, 0, 0, 0", 1),
        ("name_to_handle_at", "303, 0, 0, 0, 0, 0", 1),
        ("init_module", "175, 0, 0, 0", 1),
        ("kexec_load", "246, 0, 0, 0, 0", 1),
        ("fanotify_init", "300, 0, 0", 1),
        ("quotactl", "179, 0, 0, 0, 0", 1),
        ("swapon", "167, 0, 0", 1),
        ("unshare user", "272, 0x10000000", 1),
        ("setns", "308, 0, 0", 1),
        ("clone user", "56, 0x10000011, 0, 0, 0, 0", 1),
        ("clone3", "435, 0, 0", 38),
        ("mount", "165, 0, 0, 0, 0, 0", 1),
        ("fsopen", "430, 0, 0", 38),
        ("open_tree", "428, 0, 0, 0", 38),
        ("pivot_root", "155, 0, 0", 1),
        ("chroot", "161, 0", 1),
        ("x32 getpid", "0x40000027", 1),
        ("socket AF_VSOCK", "41, 40, 1, 0", 1),
        ("socket AF_PACKET", "41, 17, 3, 0", 1),
        ("socket AF_ALG", "41, 38, 5, 0", 1),
        ("socket AF_KEY", "41, 15, 3, 2", 1),
        ("socket NETLINK_NETFILTER", "41, 16, 3, 12", 1),
        ("socketpair AF_TIPC", "53, 30, 1, 0, 0", 1),
        ("ioctl TIOCSTI", "16, 0, 0x5412, 0", 1),
        ("ioctl TIOCLINUX", "16, 0, 0x541c, 0", 1),
        // The kernel ignores the high half of the number.
        ("ioctl TIOCSTI with a high half", "16, 0, 0x100005412, 0", 1),
        ("ioctl TIOCLINUX with a high half", "16, 0, 0x10000541c, 0", 1),
        ("modify_ldt", "154, 0, 0, 0", 1),
        ("settimeofday", "164, 0, 0", 1),
        ("reboot", "169, 0, 0, 0", 1),
    ] {
        let result =
            session.sh(&format!("perl -e '$! = 0; my $r = syscall({call}); print \"$r \", $! + 0'")).await;
        assert_eq!(result, format!("-1 {errno}"), "{name}");
    }
}

#[tokio::test]
async fn a_command_cannot_reach_the_network() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    refused(&session, &format!("exec 9<>/dev/tcp/127.0.0.1/{port}"), "Connection refused").await;
    for address in ["169.254.169.254/80", "1.1.1.1/443", "10.0.0.1/80"] {
        refused(&session, &format!("exec 9<>/dev/tcp/{address}"), "unreachable").await;
    }
    refused(&session, "exec 9<>/dev/udp/8.8.8.8/53", "unreachable").await;
    refused(&session, "getent hosts example.com", "code 2").await;
    refused(&session, "git clone https://example.com/x.git", "Could not resolve host").await;
    refused(&session, "git clone 'ext::sh -c id' x", "not allowed").await;
    refused(&session, "ls /var/run/docker.sock /run/docker.sock /run/dbus", "No such file").await;
    assert_eq!(session.sh("cat /proc/net/dev | grep -c : ").await, "1");
}

#[tokio::test]
async fn a_command_cannot_exceed_or_raise_its_limits() {
    let (_directory, _machine, session) = fresh(&["--tmp-bytes", "2097152"]).await;
    refused(&session, "head -c 3M /dev/zero > /tmp/x", "No space left").await;
    refused(&session, "head -c 3M /dev/zero > /home/agent/x", "No space left").await;
    refused(&session, "truncate -s 1T x", "File size limit exceeded").await;
    refused(&session, "head -c 1M /dev/zero > /dev/big", "Read-only file system").await;
    refused(&session, "mkdir /dev/shm/../d", "Read-only file system").await;
    assert_eq!(session.sh("rm /tmp/x; echo x > /dev/null; echo x > /dev/shm/x; echo x > /var/tmp/y; cat /dev/shm/x /tmp/y").await, "x\nx");
    assert_eq!(session.sh("ulimit -n; ulimit -c; ulimit -u").await, "4096\n0\n512");
    assert_eq!(session.run("ulimit -c unlimited").await.exit.code, 1);
}
