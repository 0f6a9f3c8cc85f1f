//! Toolchains and test services that run on this machine run in a sandbox too. Those that need a program which the machine lacks are left out.

use crate::harness::{Machine, Session, directory, fresh};
use rpc::v1::{SandboxOptions, WorkspaceHeader};
use std::path::Path;

/// Whether the machine has all programs. Where it lacks one, the test is skipped.
fn has_all(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !Path::new(program).exists());
    if let Some(missing) = missing {
        testkit::left_out::skip(&format!("this machine has no {missing}"));
    }
    missing.is_none()
}

/// Runs a script in a new sandbox and compares what it prints, if the machine has all programs.
async fn prints(programs: &[&str], script: &str, want: &str) {
    if has_all(programs) {
        let (_directory, _machine, session) = fresh(&[]).await;
        assert_eq!(output(&session, script).await, want);
    }
}

/// What a script prints, with its errors.
async fn output(session: &Session, script: &str) -> String {
    let outcome = session.run(&format!("{{ {script}\n}} 2>&1")).await;
    outcome.output.trim_end().to_owned()
}

#[tokio::test]
async fn postgres_runs_as_a_test_service() {
    let script = "PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH
initdb -D /tmp/db --auth=trust --no-sync > /dev/null
pg_ctl -D /tmp/db -w -o '-k /tmp -p 5433' -l /tmp/log start > /dev/null || cat /tmp/log
psql -h 127.0.0.1 -p 5433 -d postgres -Atc 'select sum(n) from generate_series(1, 100) n'
pg_ctl -D /tmp/db -m immediate stop > /dev/null";
    prints(&["/usr/lib/postgresql", "/usr/bin/psql"], script, "5050").await;
}

#[tokio::test]
async fn redis_runs_as_a_test_service() {
    let script = "redis-server --port 6380 --daemonize yes --save '' --dir /tmp > /dev/null
until redis-cli -p 6380 ping > /dev/null 2>&1; do :; done
redis-cli -p 6380 incr visits; redis-cli -p 6380 shutdown nosave";
    prints(&["/usr/bin/redis-server", "/usr/bin/redis-cli"], script, "1").await;
}

#[tokio::test]
async fn python_shares_memory_between_processes() {
    let script = "python3 -c '
import asyncio, multiprocessing, subprocess, threading
def add(total, times):
    for _ in range(times):
        with total.get_lock(): total.value += 1
total = multiprocessing.Value(\"i\", 0)
workers = [multiprocessing.Process(target=add, args=(total, 100)) for _ in range(4)]
[worker.start() for worker in workers]; [worker.join() for worker in workers]
print(total.value, asyncio.run(asyncio.sleep(0, \"loop\")), subprocess.check_output([\"echo\", \"child\"]).decode().strip())'";
    prints(&["/usr/bin/python3"], script, "400 loop child").await;
}

#[tokio::test]
async fn node_runs_threads_children_and_a_server() {
    let script = "cat > t.mjs <<'END'
import { Worker } from 'node:worker_threads';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
const worker = new Worker('require(\"node:worker_threads\").parentPort.postMessage(6 * 7)', { eval: true });
const answer = await new Promise((done) => worker.once('message', done));
const server = createServer((_, response) => response.end('served')).listen(0, '127.0.0.1');
await new Promise((done) => server.once('listening', done));
const page = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text();
console.log(answer, page, execFileSync('echo', ['child']).toString().trim());
process.exit(0);
END
node t.mjs";
    prints(&["/usr/bin/node"], script, "42 served child").await;
}

#[tokio::test]
async fn java_compiles_and_runs_threads() {
    let script = "cat > Sum.java <<'END'
import java.util.stream.LongStream;
public class Sum {
    public static void main(String[] arguments) throws Exception {
        System.out.println(LongStream.rangeClosed(1, 1000).parallel().sum());
        System.out.println(new String(new ProcessBuilder(\"echo\", \"child\").start().getInputStream().readAllBytes()).trim());
    }
}
END
javac -d out Sum.java && java -cp out Sum";
    prints(&["/usr/bin/javac"], script, "500500\nchild").await;
}

#[tokio::test]
async fn sanitizers_of_c_find_their_mistakes() {
    let source = "cat > m.c <<'END'
#include <pthread.h>
#include <stdlib.h>
int shared;
void *count(void *nothing) { for (int i = 0; i < 100000; i++) shared++; return nothing; }
int main(int argc, char **argv) {
    pthread_t thread;
    pthread_create(&thread, 0, count, 0); count(0); pthread_join(thread, 0);
    char *bytes = malloc(8);
    bytes[8] = (char)argc;
    free(bytes);
    return 0;
}
END";
    let (_directory, _machine, session) = fresh(&[]).await;
    session.sh(source).await;
    let check = |kind: &str| format!("gcc -g -fsanitize={kind} -o m m.c && ASAN_OPTIONS=detect_leaks=0 ./m");
    let address = output(&session, &check("address")).await;
    assert!(address.contains("heap-buffer-overflow"), "{address}");
    let thread = output(&session, &check("thread")).await;
    assert!(thread.contains("WARNING: ThreadSanitizer: data race"), "{thread}");
    // Where the machine's addresses are very random, the sanitizer of threads starts itself again like this.
    session.sh("setarch -R true").await;
    let undefined = "printf 'int main(int n, char **v) { int big = 2147483647; return (big + n) == 0; }' > u.c; gcc -fsanitize=undefined -o u u.c && ./u";
    let undefined = output(&session, undefined).await;
    assert!(undefined.contains("signed integer overflow"), "{undefined}");
}

#[tokio::test]
async fn debuggers_follow_a_program_where_the_settings_allow_it() {
    if !has_all(&["/usr/bin/gdb", "/usr/bin/strace"]) {
        return;
    }
    let directory = directory();
    let machine = Machine::start_with(directory.path(), &[]).await;
    let session = machine.session();
    let options = Some(SandboxOptions { allow_ptrace: true, ..SandboxOptions::default() });
    session.open(WorkspaceHeader { options, ..WorkspaceHeader::default() }, vec![]).await.unwrap();
    let script = "echo 'int twice(int n) { return 2 * n; } int main(void) { return twice(21); }' > t.c; gcc -g -o t t.c
gdb --batch -ex 'break twice' -ex run -ex 'print n * 3' ./t | grep '^[$]1'
strace -f -o calls ./t; grep -o 'exited with .*[0-9]' calls";
    assert_eq!(output(&session, script).await, "$1 = 63\nexited with 42");
}
