//! Whole outputs of tools: only the session's own tools can read them, and none can write them.

use crate::harness::{Session, code, fresh};
use rpc::v1;
use std::path::Path;
use tonic::Status;

async fn keep(session: &Session, output_id: &str, data: &[u8]) -> Result<String, Status> {
    let (output_id, data) = (output_id.to_owned(), data.to_vec());
    let request = v1::KeepOutputRequest { fence: session.fence(), output_id, data };
    session.client.clone().keep_output(request).await.map(|answer| answer.into_inner().path)
}

/// The request of a gateway, for a person.
async fn get(session: &Session, path: &str) -> Result<Vec<u8>, Status> {
    let (tenant_id, session_id) = (session.tenant.clone(), session.id.clone());
    let request = v1::GetOutputRequest { tenant_id, session_id, path: path.to_owned() };
    session.client.clone().get_output(request).await.map(|output| output.into_inner().data)
}

#[tokio::test]
async fn a_kept_output_is_readable_inside_and_not_part_of_the_workspace() {
    let (_directory, machine, session) = fresh(&[]).await;
    let path = keep(&session, "prt_1", b"one\nneedle\n").await.unwrap();
    assert!(Path::new(&path).starts_with(domain::session::OUTPUTS), "{path}");
    assert_eq!(session.read(&path).await.unwrap().data, b"one\nneedle\n");
    assert_eq!(session.lines(&path).await.unwrap().lines, ["one", "needle"]);
    assert_eq!(session.sh(&format!("grep -n needle {path}")).await, "2:needle");
    let request = v1::GrepFilesRequest {
        fence: session.fence(),
        pattern: "needle".to_owned(),
        path: path.clone(),
        ..Default::default()
    };
    let found = session.client.clone().grep_files(request).await.unwrap().into_inner();
    assert_eq!(found.matches.len(), 1);
    // Outputs are kept while the sandbox runs. The same id replaces the earlier output.
    assert_eq!(keep(&session, "prt_1", b"two\n").await.unwrap(), path);
    assert_eq!(session.sh(&format!("cat {path}")).await, "two");
    assert_ne!(keep(&session, "prt_2", b"").await.unwrap(), path);

    assert_eq!(
        session.sh(&format!("(echo x > {path}) 2>/dev/null || echo no; git status --porcelain")).await,
        "no"
    );
    assert_eq!(code(session.write(&path, b"x").await), "path_outside_workspace");
    let other = machine.empty_session().await;
    assert_eq!(code(other.read(&path).await), "file_not_found");
    assert_eq!(get(&session, &path).await.unwrap(), b"two\n");
    let ran = session.run("echo ran").await;
    assert_eq!(get(&session, &ran.exit.spill_path).await.unwrap(), b"ran\n");
    assert_eq!(code(get(&other, &path).await), "file_not_found");
    for path in ["/etc/passwd", "/workspace/a", "/run/sbx/out/../../etc/passwd"] {
        assert_eq!(code(get(&session, path).await), "file_not_found", "{path}");
    }
}

#[tokio::test]
async fn kept_outputs_are_bounded_fenced_and_removed_with_the_session() {
    let (directory, _machine, session) = fresh(&[]).await;
    let most = usize::try_from(domain::limits::EXEC_OUTPUT_BYTES_MAX).unwrap();
    assert_eq!(code(keep(&session, "long", &vec![0; most + 1]).await), "file_too_large");
    assert_eq!(code(keep(&session, "", b"x").await), "argument_invalid");
    keep(&session, "most", &vec![b'x'; most]).await.unwrap();
    let outputs = directory.path().join("data/execs").join(session.tenant.replace('-', "")).join(&session.id);
    assert_eq!(std::fs::read_dir(&outputs).unwrap().count(), 1);
    let new = Session { epoch: 2, ..session.clone() };
    keep(&new, "new", b"x").await.unwrap();
    assert_eq!(code(keep(&session, "late", b"x").await), "epoch_stale");
    let close = v1::CloseWorkspaceRequest { fence: new.fence() };
    new.client.clone().close_workspace(close).await.unwrap();
    assert!(!outputs.exists());
}
