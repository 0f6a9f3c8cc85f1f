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
