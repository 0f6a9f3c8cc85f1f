//! Projects: the repositories that new sessions open.

use e2e::{
    Stack,
    api::{Api, assert_refused},
    turn::{bash, run},
};
use rpc::v1;
use tonic::Code;

fn uploaded(bundle_id: String) -> Option<v1::Source> {
    Some(v1::Source { from: Some(v1::source::From::BundleId(bundle_id)), revision: String::new() })
}

/// The content of `a.txt` in a new session of the project that names no source itself.
async fn content_in_new_session(stack: &Stack, project_id: &str) -> String {
    let request = v1::CreateSessionRequest { project_id: project_id.to_owned(), ..Default::default() };
    let session =
        stack.api.sessions().create_session(request).await.unwrap().into_inner().session.unwrap().id;
    run(&stack.api, &session, &format!("{}\n@text done", bash("cat a.txt"))).await;
    stack.api.tool_calls(&session).await[0].result.clone()
}

#[tokio::test]
async fn an_uploaded_commit_is_found_by_its_tenant_alone() {
    let stack = Stack::start().await;
    let repository = testkit::git::repository(&[("a.txt", "first")]);
    let id = stack.api.upload(&repository.bundle()).await;
    let find = async |api: &Api, commit: &str, branch: &str| {
        let request = v1::FindBundleRequest {
            commit: commit.to_owned(),
            branch: branch.to_owned(),
            may_be_shallow: false,
        };
        api.projects().find_bundle(request).await.map(|found| found.into_inner().bundle_id)
    };
    assert_eq!(find(&stack.api, &repository.commit, "main").await.unwrap(), id);
    assert_eq!(find(&stack.api, &repository.commit, "other").await.unwrap(), "");
    assert_eq!(find(&stack.api, &"1".repeat(40), "main").await.unwrap(), "");
    assert_refused(find(&stack.api, "HEAD", "main").await, Code::InvalidArgument, "bundle_invalid");
    let other = stack.other_tenant().await;
    assert_eq!(find(&other, &repository.commit, "main").await.unwrap(), "");
}

#[tokio::test]
async fn a_session_is_checked_before_its_files_are_sent() {
    let stack = Stack::start().await;
    let check = async |request: v1::CreateSessionRequest| {
        let request = v1::CreateSessionRequest { validate_only: true, ..request };
        stack.api.sessions().create_session(request).await.map(tonic::Response::into_inner)
    };
    assert_eq!(check(v1::CreateSessionRequest::default()).await.unwrap().session, None);
    let model = v1::ModelRef { provider_id: "nope".to_owned(), model_id: "x".to_owned() };
    let refused = check(v1::CreateSessionRequest { model: Some(model), ..Default::default() }).await;
    assert_refused(refused, Code::InvalidArgument, "model_unknown");
    let sessions = stack.api.sessions().list_sessions(v1::ListSessionsRequest::default()).await.unwrap();
    assert_eq!(sessions.into_inner().sessions, []);
}

#[tokio::test]
async fn a_project_is_its_repository_and_not_its_directory() {
    let stack = Stack::start().await;
    let (root, other_root) = ("1".repeat(40), "2".repeat(40));
    let mut uploads = vec![];
    for text in ["one", "two", "three"] {
        uploads.push(stack.api.upload(&testkit::git::repository(&[("a.txt", text)]).bundle()).await);
    }
    let create = async |name: &str, upload: usize, place: [&str; 3]| {
        let [directory, remote, root_commit] = place.map(ToOwned::to_owned);
        let request = v1::CreateProjectRequest {
            name: name.to_owned(),
            source: uploaded(uploads[upload].clone()),
            place: Some(v1::Place { directory, remote, root_commit }),
            or_at_place: true,
        };
        let answer = stack.api.projects().create_project(request).await.unwrap().into_inner();
        (answer.project.unwrap().name, answer.is_elsewhere)
    };
    let own = |name: &str| (name.to_owned(), false);
    assert_eq!(create("app", 0, ["/work", "https://a.org/app.git", ""]).await, own("app"));
    // Another clone of it, and its directory with another repository.
    assert_eq!(create("clone", 1, ["/elsewhere", "git@a.org:app", ""]).await, own("app"));
    assert_eq!(create("other", 1, ["/work", "https://a.org/other", ""]).await, own("other"));
    assert_eq!(create("work", 0, ["/work", "https://a.org/app", ""]).await, own("app"));
    // Without a remote, the first commit tells.
    assert_eq!(create("local", 2, ["/home/local", "", &root]).await, own("local"));
    assert_eq!(create("copy", 1, ["/home/copy", "", &root]).await, own("local"));
    assert_eq!(create("new", 1, ["/home/local", "", &other_root]).await, own("new"));
    // It has got a remote.
    assert_eq!(create("copy", 1, ["/home/copy", "https://a.org/local", ""]).await, own("local"));
    assert_eq!(create("any", 1, ["/any", "https://a.org/local", ""]).await, own("local"));
    // The name alone says nothing.
    assert_eq!(create("app", 1, ["/tmp/app", "https://b.org/app", ""]).await, ("app".to_owned(), true));
}

#[tokio::test]
async fn new_sessions_open_the_newest_source_of_their_project() {
    let stack = Stack::start().await;
    let mut projects = stack.api.projects();
    let repository = testkit::git::repository(&[("a.txt", "first")]);
    let first = stack.api.upload(&repository.bundle()).await;
    let create = |source: &str, directory: &str| v1::CreateProjectRequest {
        name: "files".to_owned(),
        source: uploaded(source.to_owned()),
        place: Some(v1::Place { directory: directory.to_owned(), ..Default::default() }),
        or_at_place: true,
    };
    let created = projects.create_project(create(&first, "/home/me/files")).await.unwrap().into_inner();
    let (project, is_elsewhere) = (created.project.unwrap(), created.is_elsewhere);
    assert!(!is_elsewhere, "it is new");
    let get = v1::GetProjectRequest { project_id: project.id.clone() };
    let known = projects.get_project(get).await.unwrap().into_inner().uploaded.unwrap();
    assert_eq!((known.commit, known.uploaded_at_ms > 0), (repository.commit.clone(), true));
    assert!(content_in_new_session(&stack, &project.id).await.contains("first"));

    let second = stack.api.upload(&testkit::git::repository(&[("a.txt", "second")]).bundle()).await;
    for (directory, want) in [("/home/me/files", false), ("/srv/files", true)] {
        let again = projects.create_project(create(&second, directory)).await.unwrap().into_inner();
        assert_eq!(
            (again.project.unwrap().id, again.is_elsewhere),
            (project.id.clone(), want),
            "{directory}"
        );
    }
    let update = |source| v1::SetProjectSourceRequest { project_id: project.id.clone(), source, place: None };
    let answer = projects.set_project_source(update(uploaded(second.clone()))).await.unwrap().into_inner();
    assert_eq!(answer.project.unwrap().source, uploaded(second));
    assert!(content_in_new_session(&stack, &project.id).await.contains("second"));

    projects.set_project_source(update(None)).await.unwrap();
    assert!(
        content_in_new_session(&stack, &project.id).await.contains("No such file"),
        "a project without files"
    );

    let url = |url: &str| {
        let from = Some(v1::source::From::GitUrl(url.to_owned()));
        Some(v1::Source { from, revision: String::new() })
    };
    let refused = projects.set_project_source(update(url("ftp://example.com/a"))).await;
    assert_refused(refused, Code::InvalidArgument, "url_not_allowed");
    for leak in [
        "https://u:hunter2@host.example/x.git",
        "https://hunter2@host.example/x.git",
        "ssh://git:hunter2@host.example/x.git",
    ] {
        let create =
            v1::CreateProjectRequest { name: "leak".to_owned(), source: url(leak), ..Default::default() };
        let created = projects.create_project(create).await.map(|_| ());
        let changed = projects.set_project_source(update(url(leak))).await.map(|_| ());
        for refused in [created, changed] {
            let message = assert_refused(refused, Code::InvalidArgument, "url_not_allowed");
            assert!(!message.contains("hunter2") && message.contains("flotilla secret set"), "{message}");
        }
    }
    projects.set_project_source(update(url("ssh://git@host.example/x.git"))).await.unwrap();
    let missing = v1::SetProjectSourceRequest { project_id: "prj_0".to_owned(), ..Default::default() };
    assert_refused(projects.set_project_source(missing).await, Code::NotFound, "project_not_found");
}
