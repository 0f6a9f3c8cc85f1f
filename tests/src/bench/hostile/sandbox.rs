//! Attacks on the sandbox machine and on the tools: processors, disk, memory, helpers, conversions.

use super::{http::Http, round::Round, sizes::Sizes};
use crate::{
    api::{Api, code},
    turn::{bash, run},
};
use reqwest::Method;
use rpc::v1;
use std::time::Duration;

/// Keeps all processors busy.
pub(super) const BUSY: &str = "for i in 1 2 3 4; do while :; do :; done & done; sleep 20; kill %1 %2 %3 %4";
/// Starts as many processes as it can.
pub(super) const FORK_BOMB: &str = "bomb() { bomb | bomb & }; bomb; sleep 5";
/// Fills the disk with files that no directory shows.
pub(super) const FULL_DISK: &str = "exec 3>hole; rm hole; head -c 20G /dev/zero >&3; exec 3>&-";
/// Fills the memory.
pub(super) const FULL_MEMORY: &str = "head -c 20G /dev/zero | tail -c 20G > /dev/null";
/// Prints without end.
pub(super) const ENDLESS_OUTPUT: &str = "timeout 10 yes";
/// Time after which the client of a diff leaves.
const DIFF_WAIT: Duration = Duration::from_secs(1);
/// Bytes of the file that is edited.
const EDITED_BYTES: usize = 900_000;
const DEPTH: usize = 20_000;
/// Terminals at once.
const TERMINALS: usize = 8;

fn refusal(status: tonic::Status) -> String {
    code(&status)
}

async fn session(api: &Api) -> Result<String, String> {
    api.try_session(None).await.map(|session| session.id).map_err(refusal)
}

/// A turn with one prompt in a new session.
async fn turn(api: &Api, prompt: &str) -> Round {
    let session = session(api).await?;
    api.prompt(&session, prompt).await.map_err(refusal)?;
    let mut watch = crate::turn::Watch::start(api, &session).await;
    let outcome = watch.until_idle().await;
    let is_refused = api.tool_calls(&session).await.iter().any(|call| call.status == "error");
    if outcome == "done" && !is_refused { Ok(()) } else { Err(format!("turn {outcome}")) }
}

/// A turn that runs a command.
pub(super) async fn command(api: Api, command: &'static str) -> Round {
    turn(&api, &bash(command)).await
}

/// Diffs of a large workspace whose callers leave at once.
pub(super) async fn diffs(api: Api, sizes: Sizes) -> Round {
    let session = session(&api).await?;
    let files = format!("mkdir d; cd d; seq {} | xargs touch; echo made", sizes.files);
    run(&api, &session, &bash(&files)).await;
    for _ in 0..20 {
        let request = v1::GetSessionDiffRequest { session_id: session.clone(), ..Default::default() };
        let mut client = api.sessions();
        if let Ok(Err(status)) = tokio::time::timeout(DIFF_WAIT, client.get_session_diff(request)).await {
            return Err(refusal(status));
        }
    }
    Ok(())
}

/// Searches with a pattern that takes long.
pub(super) async fn searches(http: Http) -> Round {
    Http::round(http.request(Method::GET, "/find?pattern=(x%2Bx%2B)%2By&directory=project")).await
}

/// An edit whose text nearly occurs everywhere in a long line.
pub(super) async fn edits(api: Api) -> Round {
    let make = format!("head -c {EDITED_BYTES} /dev/zero | tr '\\0' 'a' > long.txt");
    let edit = serde_json::json!({"filePath": "/workspace/long.txt", "oldString": format!("{}b", "a".repeat(5_000)), "newString": "c"});
    turn(&api, &format!("{}\n@tool edit {edit}\n@text done", bash(&make))).await
}

/// A command whose text is nested deeply.
pub(super) async fn deep_commands(api: Api) -> Round {
    let command = format!("{}true{}", "$(".repeat(DEPTH), ")".repeat(DEPTH));
    let call = serde_json::json!({"command": command, "description": "nested"});
    turn(&api, &format!("@tool bash {call}\n@text done")).await
}

/// Terminals that print without end.
pub(super) async fn terminals(api: Api) -> Round {
    let session_id = session(&api).await?;
    for _ in 0..TERMINALS {
        let request = v1::CreatePtyRequest {
            session_id: session_id.clone(),
            command: "/bin/sh".to_owned(),
            args: ["-c".to_owned(), "timeout 20 yes".to_owned()].into(),
            ..Default::default()
        };
        api.ptys().create_pty(request).await.map_err(refusal)?;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    Ok(())
}

/// Sessions whose repository never answers.
pub(super) async fn clones(api: Api) -> Round {
    let from = Some(v1::source::From::GitUrl("https://192.0.2.1/slow.git".to_owned()));
    let session =
        api.try_session(Some(v1::Source { from, revision: String::new() })).await.map_err(refusal)?.id;
    let (outcome, _) = run(&api, &session, &bash("true")).await;
    if outcome == "done" { Ok(()) } else { Err(format!("turn {outcome}")) }
}
