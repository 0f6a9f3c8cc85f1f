//! Uploads that contradict their header or are not bundles.

use domain::{limits, text};
use e2e::{
    Stack,
    api::{Api, assert_refused},
    turn::{assert_works, run},
};
use rpc::v1::{self, upload_bundle_request::Part};
use sha2::{Digest as _, Sha256};
use testkit::git::Bundle;
use tonic::{Code, Status};

fn header(size_bytes: u64, sha256: &str) -> Part {
    Part::Header(v1::BundleHeader { size_bytes, sha256: sha256.to_owned() })
}

async fn upload(api: &Api, parts: Vec<Part>) -> Result<String, Status> {
    let messages: Vec<_> =
        parts.into_iter().map(|part| v1::UploadBundleRequest { part: Some(part) }).collect();
    let answer = api.projects().upload_bundle(tokio_stream::iter(messages)).await?;
    Ok(answer.into_inner().bundle_id)
}

async fn session_from(api: &Api, bundle_id: &str) -> Result<String, Status> {
    let from = Some(v1::source::From::BundleId(bundle_id.to_owned()));
    Ok(api.try_session(Some(v1::Source { from, revision: String::new() })).await?.id)
}

#[tokio::test]
async fn an_upload_that_contradicts_its_header_is_refused() {
    let stack = Stack::start().await;
    let api = &stack.api;
    let bundle = testkit::git::repository(&[("a.txt", "a\n")]).bundle();
    let (size, sha256) = (bundle.bytes.len() as u64, bundle.sha256.as_str());
    let data = |bytes: &[u8]| Part::Data(bytes.to_vec());
    let all = || data(&bundle.bytes);
    let mut flipped = bundle.bytes.clone();
    flipped[20] ^= 1;
    let upper = sha256.to_uppercase();
    for (what, parts) in [
        ("another byte", vec![header(size, sha256), data(&flipped)]),
        ("another hash", vec![header(size, &"0".repeat(64)), all()]),
        ("too long", vec![header(size, sha256), all(), data(b"x")]),
        ("too long at once", vec![header(1, sha256), all()]),
        ("too short", vec![header(size, sha256), data(&bundle.bytes[1..])]),
        ("nothing", vec![header(size, sha256)]),
        ("header twice", vec![header(size, sha256), header(size, sha256), all()]),
        ("data first", vec![all(), header(size, sha256)]),
        ("no message", vec![]),
        ("short hash", vec![header(size, &sha256[..63]), all()]),
        ("hash in upper case", vec![header(size, &upper), all()]),
        ("no hash", vec![header(size, "../../etc/passwd"), all()]),
    ] {
        let refused = upload(api, parts).await;
        assert!(refused.is_err(), "{what}");
        assert_refused(refused, Code::InvalidArgument, "bundle_invalid");
    }
    for claimed in [0, limits::BUNDLE_BYTES_MAX + 1, u64::MAX] {
        let refused = upload(api, vec![header(claimed, sha256), all()]).await;
        assert_refused(refused, Code::InvalidArgument, "bundle_too_large");
    }
    let large = vec![header(4 << 20, sha256), data(&vec![0; 2 << 20])];
    assert_refused(upload(api, large).await, Code::OutOfRange, "body_too_large");
    let unfinished = session_from(api, sha256).await;
    assert_refused(unfinished, Code::NotFound, "bundle_not_found");
    // The failed uploads have no effect on a correct one.
    assert_eq!(upload(api, vec![header(size, sha256), all()]).await.unwrap(), sha256);
    let session = session_from(api, sha256).await.unwrap();
    assert_eq!(run(api, &session, "@tool bash {\"command\":\"cat a.txt\"}").await.0, "done");
    assert_eq!(api.tool_calls(&session).await[0].result, "a\n");
    for unknown in ["", "x", "\0", &"0".repeat(64)] {
        assert_refused(session_from(api, unknown).await, Code::NotFound, "bundle_not_found");
    }
}

/// Bytes of the stored pieces of all uploads, finished or not.
async fn bytes_stored(stack: &Stack) -> i64 {
    let sql = "select coalesce(sum(length(data)), 0)::bigint from bundle_piece";
    let mut owner = stack.database.owner().await;
    sqlx::query_scalar(sql).fetch_one(&mut *owner).await.unwrap()
}

#[tokio::test]
async fn two_uploads_of_one_hash_do_not_mix() {
    let stack = Stack::gateway_alone().await;
    let right = vec![7; limits::BUNDLE_PIECE_BYTES + 1];
    let (size, sha256) = (right.len() as u64, text::hex(&Sha256::digest(&right)));
    let message = |part| v1::UploadBundleRequest { part: Some(part) };
    let (parts, waiting) = tokio::sync::mpsc::channel(4);
    let (piece, rest) = right.split_at(limits::BUNDLE_PIECE_BYTES);
    for part in [header(size, &sha256), Part::Data(piece.to_vec()), Part::Data(rest.to_vec())] {
        parts.send(message(part)).await.unwrap();
    }
    let mut projects = stack.api.projects();
    let first = tokio::spawn(async move {
        projects.upload_bundle(tokio_stream::wrappers::ReceiverStream::new(waiting)).await.map(drop)
    });
    testkit::eventually("the first upload has stored a piece", async || bytes_stored(&stack).await > 0).await;
    // The second one overtakes the first with wrong bytes.
    let wrong = [vec![8; piece.len()], vec![8; rest.len()]].map(Part::Data);
    let refused = upload(&stack.api, std::iter::once(header(size, &sha256)).chain(wrong).collect()).await;
    assert_refused(refused, Code::InvalidArgument, "bundle_invalid");
    drop(parts);
    first.await.unwrap().unwrap();
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    let sql = "select p.data from bundle_piece p join bundle b on b.id = p.bundle_id where b.complete order by p.piece";
    let pieces: Vec<Vec<u8>> = sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap();
    assert!(pieces.concat() == right, "the bundle has the bytes of its hash");
    assert_eq!(bytes_stored(&stack).await, i64::try_from(size).unwrap(), "nothing else is left");
}

#[tokio::test]
async fn a_bundle_that_was_damaged_in_the_store_is_refused() {
    let stack = Stack::start().await;
    let session = stack.session_on(&testkit::git::repository(&[("a.txt", "a\n")])).await;
    let mut connection = testkit::database::connect(&stack.database.migrator_url).await;
    let damage = "update bundle_piece set data = set_byte(data, length(data) - 1, 255 - get_byte(data, length(data) - 1))";
    sqlx::query(damage).execute(&mut connection).await.unwrap();
    let (outcome, transcript) = run(&stack.api, &session, "@text I need no file.").await;
    let error = transcript.error().unwrap();
    assert_eq!((outcome.as_str(), &error["data"]["ref"]), ("failed", &"bundle_invalid".into()), "{error}");
    assert!(error["data"]["message"].as_str().unwrap().contains("incomplete or damaged"), "{error}");
}

#[tokio::test]
async fn an_invalid_bundle_ends_the_turn_with_an_error() {
    let stack = Stack::start().await;
    let bundle = |bytes: &[u8]| Bundle { bytes: bytes.to_vec(), sha256: text::hex(&Sha256::digest(bytes)) };
    let whole = testkit::git::repository(&[("a.txt", "a\n")]).bundle().bytes;
    for bundle in [bundle(b"this is no git bundle\n"), bundle(&whole[..whole.len() - 10])] {
        let id = stack.api.upload(&bundle).await;
        let session = session_from(&stack.api, &id).await.unwrap();
        let (outcome, transcript) = run(&stack.api, &session, "@text I need no file.").await;
        let error = transcript.error().unwrap();
        assert_eq!(
            (outcome.as_str(), &error["data"]["ref"]),
            ("failed", &"bundle_invalid".into()),
            "{error}"
        );
        assert!(error["data"]["message"].as_str().unwrap().ends_with("(bundle_invalid)"), "{error}");
    }
    assert_works(&stack.api, &stack.session().await).await;
}
