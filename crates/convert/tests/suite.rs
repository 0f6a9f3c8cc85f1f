//! The program as a service runs it: what ends an attack, what stands around it, and what its parent's leave ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use convert_client::{
    bounds::{MEMORY_BYTES_MAX, REQUEST_BYTES_MAX, WALL_TIME_MAX},
    converter::Converter,
    patch::Hunk,
    request::{Edit, FileEdits, FilePatch, FileVersions, Occurrences, Page, PageForm, SchemaCheck},
};
use domain::ids::TenantId;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Instant,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    task::JoinHandle,
};

/// Set for the process that is a service in a test.
const SERVICE: &str = "CONVERT_TEST_SERVICE";

fn converter() -> Converter {
    Converter::new(PathBuf::from(env!("CARGO_BIN_EXE_flotilla-convert")))
}

fn tenant() -> TenantId {
    "019aa000-0000-7000-8000-000000000001".parse().unwrap()
}

/// A page whose end tags close nothing: each element makes the parser walk all open ones.
fn unclosed_page() -> Page {
    Page { html: "<div></x>".repeat(582_000), form: PageForm::Markdown }
}

fn edit(before: String, old: String, new: String) -> FileEdits {
    let edits = vec![Edit { old, new, which: Occurrences::All }];
    FileEdits { path: "a".to_owned(), before, edits }
}

/// A schema that checks a string against the same number 2^30 times.
fn exponential_schema() -> String {
    let pair = |level: usize| {
        let next = format!(r##"{{"$ref": "#/$defs/d{}"}}"##, level + 1);
        format!(r#""d{level}": {{"anyOf": [{next}, {next}]}}"#)
    };
    let pairs: Vec<String> = (0..30).map(pair).collect();
    format!(
        r##"{{"properties": {{"a": {{"$ref": "#/$defs/d0"}}}}, "$defs": {{{}, "d30": {{"type": "number"}}}}}}"##,
        pairs.join(", ")
    )
}

/// Asserts that a conversion ends by its bounds with one of these codes.
macro_rules! assert_ends {
    ($what:literal, $conversion:expr, $codes:expr) => {
        let begun = Instant::now();
        let error = $conversion.await.expect_err($what);
        assert!($codes.contains(&error.code()), "{}: {error}", $what);
        assert!(begun.elapsed() < 2 * WALL_TIME_MAX, "{}: {:?}", $what, begun.elapsed());
    };
}

#[tokio::test]
async fn an_attack_ends_with_the_name_of_its_bound() {
    let converter = converter();
    let (slow, large) = (["conversion_too_slow"], ["conversion_too_large"]);
    let either = ["conversion_too_slow", "conversion_too_large"];
    assert_ends!("unclosed elements", converter.of(tenant()).page(unclosed_page()), slow);
    let nested = Page { html: "<b>".repeat(1_700_000), form: PageForm::Text };
    assert_ends!("nested elements", converter.of(tenant()).page(nested), either);
    let quote = "ab\n".repeat(4_000) + "zz";
    assert_ends!(
        "an inexact quote",
        converter.of(tenant()).edits(edit("ab\n".repeat(1_000_000), quote.clone(), String::new())),
        slow
    );
    // On a busy machine its pages of memory cost more than a second.
    let bomb = edit("a".repeat(1 << 20), "a".to_owned(), "b".repeat(1 << 20));
    assert_ends!("many long replacements", converter.of(tenant()).edits(bomb), either);
    let old = quote.lines().map(ToOwned::to_owned).collect();
    let hunks = vec![Hunk { old, ..Hunk::default() }];
    let patch = FilePatch { path: "a".to_owned(), before: "ab\n".repeat(1_000_000), hunks };
    assert_ends!("repeated lines of a patch", converter.of(tenant()).patch(patch), slow);
    let schema = SchemaCheck { schema: exponential_schema(), value: Some(r#"{"a": "x"}"#.to_owned()) };
    assert_ends!("an exponential schema", converter.of(tenant()).schema(schema), slow);
    let text = "a".repeat(REQUEST_BYTES_MAX);
    let versions = FileVersions { path: "a".to_owned(), before: text, after: String::new() };
    assert_ends!("a request without end", converter.of(tenant()).diff(versions), large);
}

#[tokio::test]
async fn the_largest_file_is_edited_and_compared() {
    let before = (0..1_000_000).map(|line| format!("{line:08}\n")).collect::<String>();
    let edit = edit(before, "00500000\n".to_owned(), "here\n".to_owned());
    let change = converter().of(tenant()).edits(edit).await.unwrap().unwrap();
    assert!(change.after.contains("00499999\nhere\n00500001"));
    assert_eq!((change.diff.additions, change.diff.deletions), (1, 1));
}

#[tokio::test]
async fn different_files_are_compared_in_bounded_time() {
    let lines = |from: u32| {
        (from..from + 200_000).map(|line| format!("{}\n", line.wrapping_mul(2_654_435_761))).collect()
    };
    let versions = FileVersions { path: "a".to_owned(), before: lines(0), after: lines(1_000_000) };
    assert_eq!(converter().of(tenant()).diff(versions).await.unwrap().additions, 200_000);
}

/// The processes of this test that convert or are spares.
fn running() -> Vec<PathBuf> {
    let is_own = |directory: &PathBuf| {
        let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1);
        stat.contains("(flotilla-conver)") && parent == Some(&Pid::this().to_string())
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_own).collect()
}

fn status(directory: &Path) -> String {
    fs::read_to_string(directory.join("status")).unwrap_or_default()
}

/// Whether a process stands behind its last wall, which is the filter.
fn is_walled(directory: &Path) -> bool {
    status(directory).contains("Seccomp:\t2")
}

/// Waits until one process runs for this test and stands behind its walls. Without a conversion, it is a spare.
async fn spare() -> Pid {
    until(|| matches!(&running()[..], [only] if is_walled(only))).await;
    let directory = running().pop().expect("a spare stays");
    Pid::from_raw(directory.file_name().unwrap().to_str().unwrap().parse().unwrap())
}

/// Stops a process and waits until it stands still.
async fn stop(pid: Pid) {
    signal::kill(pid, Signal::SIGSTOP).unwrap();
    until(|| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")).await;
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

async fn read_commands(converter: &Converter) {
    let commands = converter.of(tenant()).commands(vec!["ls -a".to_owned()]).await.unwrap();
    assert_eq!(commands.into_iter().flat_map(|commands| commands.patterns).collect::<Vec<_>>(), ["ls -a"]);
}

fn begin_reading(converter: &Arc<Converter>) -> JoinHandle<()> {
    let converter = Arc::clone(converter);
    tokio::spawn(async move { read_commands(&converter).await })
}

/// Waits until `is_met`, and lets the conversions go on meanwhile.
async fn until(mut is_met: impl FnMut() -> bool) {
    while !is_met() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_conversion_stands_behind_its_walls() {
    let converter = Arc::new(converter());
    let conversion = tokio::spawn({
        let converter = Arc::clone(&converter);
        async move { converter.of(tenant()).page(unclosed_page()).await }
    });
    let walled = || running().into_iter().find(|directory| is_walled(directory));
    until(|| walled().is_some() || conversion.is_finished()).await;
    let directory = walled().expect("a conversion behind its last wall");
    let limits = fs::read_to_string(directory.join("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max address space"), MEMORY_BYTES_MAX.to_string());
    for (name, want) in
        [("Max cpu time", "1"), ("Max processes", "0"), ("Max file size", "0"), ("Max core file size", "0")]
    {
        assert_eq!(limit(name), want, "{name}");
    }
    assert!(status(&directory).contains("NoNewPrivs:\t1"), "{}", status(&directory));
    assert_eq!(fs::read_to_string(directory.join("oom_score_adj")).unwrap().trim(), "1000");
    let stat = fs::read_to_string(directory.join("stat")).unwrap();
    let nice = stat.rsplit(')').next().unwrap().split_whitespace().nth(16);
    assert_eq!(nice, Some("5"), "it yields to the services: {stat}");
    assert_eq!(fs::read_to_string(directory.join("environ")).unwrap_or_default(), "");
    let open =
        fs::read_dir(directory.join("fd")).map(|open| open.map(|fd| fd.unwrap().file_name()).collect());
    let open: Vec<_> = open.unwrap_or_default();
    assert!(open.iter().all(|fd| ["0", "1", "2"].contains(&fd.to_str().unwrap())), "{open:?}");
    assert_eq!(conversion.await.unwrap().unwrap_err().code(), "conversion_too_slow");
}

#[tokio::test]
async fn a_caller_that_leaves_kills_its_conversion() {
    let converter = Arc::new(converter());
    let conversion = tokio::spawn({
        let converter = Arc::clone(&converter);
        async move { converter.of(tenant()).page(unclosed_page()).await }
    });
    // The conversion, and the next spare, which stays.
    until(|| running().len() == 2).await;
    let begun = Instant::now();
    conversion.abort();
    until(|| running().len() == 1).await;
    assert!(begun.elapsed().as_millis() < 500, "{:?}: it died of its own bound", begun.elapsed());
}

#[tokio::test]
async fn a_conversion_uses_a_process_that_has_started_and_the_next_one_starts_meanwhile() {
    let converter = Arc::new(converter());
    assert!(running().is_empty(), "nothing starts before the first conversion");
    read_commands(&converter).await;
    // It has raised its walls without a request.
    let spare_before = spare().await;
    stop(spare_before).await;
    let conversion = begin_reading(&converter);
    until(|| running().len() == 2).await;
    signal::kill(spare_before, Signal::SIGCONT).unwrap();
    conversion.await.unwrap();
    assert_ne!(spare().await, spare_before, "a process serves one request");
}

#[tokio::test]
async fn a_spare_that_dies_loses_no_request() {
    let converter = Arc::new(converter());
    read_commands(&converter).await;
    let idle = spare().await;
    signal::kill(idle, Signal::SIGKILL).unwrap();
    read_commands(&converter).await;
    // This one dies when it has its request but has not read it.
    let stopped = spare().await;
    assert_ne!(stopped, idle);
    stop(stopped).await;
    let conversion = begin_reading(&converter);
    until(|| running().len() == 2).await;
    signal::kill(stopped, Signal::SIGKILL).unwrap();
    conversion.await.unwrap();
}

#[tokio::test]
async fn a_spare_ends_with_its_converter() {
    let converter = converter();
    read_commands(&converter).await;
    let spare = spare().await;
    drop(converter);
    until(|| !lives(spare)).await;
}

#[tokio::test]
async fn a_spare_ends_with_a_service_that_is_killed() {
    let mut service = Command::new(env::current_exe().unwrap())
        .args(["--exact", "service_for_tests", "--nocapture"])
        .env(SERVICE, "")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines();
    let spare = loop {
        let line = lines.next_line().await.unwrap().expect("the service names its spare");
        if let Some(pid) = line.strip_prefix("spare ") {
            break Pid::from_raw(pid.parse().unwrap());
        }
    };
    assert!(lives(spare));
    service.kill().await.unwrap();
    until(|| !lives(spare)).await;
}

/// Not a separate test: the body of a process that another test starts.
#[tokio::test]
async fn service_for_tests() {
    if env::var_os(SERVICE).is_none() {
        return;
    }
    let converter = converter();
    read_commands(&converter).await;
    let spare = spare().await;
    // The harness may have begun a line.
    let mut output = std::io::stdout();
    writeln!(output, "\nspare {spare}").and_then(|()| output.flush()).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn one_tenant_leaves_turns_to_others() {
    let converter = Arc::new(converter());
    let slow = || {
        let converter = Arc::clone(&converter);
        tokio::spawn(async move { converter.of(tenant()).page(unclosed_page()).await })
    };
    let greedy: Vec<_> = (0..20).map(|_| slow()).collect();
    until(|| !running().is_empty()).await;
    let other = "019aa000-0000-7000-8000-000000000002".parse().unwrap();
    let versions = FileVersions { path: "a".to_owned(), before: String::new(), after: "x\n".to_owned() };
    assert_eq!(converter.of(other).diff(versions).await.unwrap().additions, 1);
    let over = greedy.iter().filter(|conversion| conversion.is_finished()).count();
    assert!(over < 10, "it waited for {over} of them");
    greedy.iter().for_each(|conversion| conversion.abort());
}

#[tokio::test]
async fn a_program_that_crashes_or_is_missing_is_named() {
    // The second program ends well and says nothing, as one of another version.
    for program in ["/bin/false", "/bin/true", "/no/such/program"] {
        let converter = Converter::new(PathBuf::from(program));
        // The second conversion may find a spare.
        for _ in 0..2 {
            let error = converter.of(tenant()).commands(vec!["ls".to_owned()]).await.unwrap_err();
            assert_eq!(error.code(), "conversion_failed", "{program}: {error}");
        }
    }
}
