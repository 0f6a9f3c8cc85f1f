//! Guidance: read within limits, never from outside, and the configuration of the base commit.

use crate::harness::{Machine, Session, code, directory, fresh, git, repository};
use rpc::v1;
use tonic::Status;

impl Session {
    async fn guidance(&self, request: v1::ReadGuidanceRequest) -> Result<v1::ReadGuidanceResponse, Status> {
        let request = v1::ReadGuidanceRequest { fence: self.fence(), ..request };
        self.client.clone().read_guidance(request).await.map(tonic::Response::into_inner)
    }
}

fn in_directory(directory: &str, instructions: &[&str]) -> v1::ReadGuidanceRequest {
    v1::ReadGuidanceRequest {
        directory: directory.to_owned(),
        instructions: instructions.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    }
}

fn files(files: &[v1::GuidanceFile]) -> Vec<(&str, &str)> {
    files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect()
}

#[tokio::test]
async fn content_that_a_clone_does_not_bring_is_named() {
    let (_directory, _machine, session) = fresh(&[]).await;
    let missing = async || session.guidance(in_directory("", &[])).await.unwrap().missing_content;
    assert!(missing().await.is_empty());
    session
        .sh("printf '[submodule \"a\"]\\n\\tpath = vendor/a\\n[submodule \"b\"]\\n\\tpath = full\\n' > .gitmodules; \
             printf '*.bin filter=lfs -text\\n' > .gitattributes; mkdir -p vendor/a full; touch full/file")
        .await;
    assert_eq!(
        missing().await,
        [
            "The directories of these submodules are empty here: vendor/a.",
            "Files of these patterns are Git LFS pointers here, without their contents: *.bin.",
        ]
    );
}

#[tokio::test]
async fn every_level_and_every_named_file_is_read_once() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session
        .sh("mkdir -p a/b/c docs/deep; echo root > AGENTS.md; echo not > CLAUDE.md; echo a > a/CLAUDE.md; echo not > a/CONTEXT.md; \
             echo c > a/b/c/CONTEXT.md; echo x > docs/x.md; echo y > docs/deep/y.md; echo no > docs/no.txt; \
             ln -s ../AGENTS.md docs/again.md; printf 'caf\\xff' > docs/odd.md")
        .await;
    let found = session
        .guidance(in_directory("a/b/c", &["docs/*.md", "./docs/deep/y.md", "/workspace/docs/x.md"]))
        .await;
    let found = found.unwrap();
    assert_eq!(
        files(&found.instructions),
        [
            ("AGENTS.md", "root\n"),
            ("a/CLAUDE.md", "a\n"),
            ("a/b/c/CONTEXT.md", "c\n"),
            ("docs/deep/y.md", "y\n"),
            ("docs/x.md", "x\n"),
            ("docs/odd.md", "caf\u{fffd}"),
        ]
    );
    assert!(found.left_out.is_empty() && found.skills.is_empty(), "{found:?}");
    let request = v1::ReadGuidanceRequest { only_levels: true, ..in_directory("a/b", &["docs/*.md"]) };
    assert_eq!(
        files(&session.guidance(request).await.unwrap().instructions),
        [("AGENTS.md", "root\n"), ("a/CLAUDE.md", "a\n")]
    );
    session.write("AGENTS.md", b"changed").await.unwrap();
    assert_eq!(session.guidance(in_directory("", &[])).await.unwrap().instructions[0].text, "changed");
    assert_eq!(code(session.guidance(in_directory("nowhere", &[])).await), "file_not_found");
    assert_eq!(code(session.guidance(in_directory("/etc", &[])).await), "path_outside_workspace");
    assert_eq!(code(session.guidance(in_directory("/tmp", &[])).await), "path_outside_workspace");
}

#[tokio::test]
async fn files_outside_the_workspace_are_not_read_and_omissions_are_named() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session
        .sh("ln -s /etc/passwd AGENTS.md; mkdir d e; ln -s ../../etc/hosts d/AGENTS.md; ln -s e/loop e/loop; mkfifo e/AGENTS.md; \
             echo secret > /tmp/secret; ln -s /tmp/secret d/link.md; head -c 65537 /dev/zero | tr '\\0' a > large.md; \
             for n in 1 2 3; do head -c 60000 /dev/zero | tr '\\0' b > sum$n.md; done; mkdir -p .claude; ln -s / .claude/skills; \
             mkdir -p .agents/skills/self; ln -s .. .agents/skills/self/up; ln -s loop .agents/skills/loop")
        .await;
    let named = [
        "large.md",
        "sum*.md",
        "/etc/passwd",
        "../x",
        "~/x",
        "https://example.com/a.md",
        "d/link.md",
        "missing.md",
        "[",
        "e/loop/x",
    ];
    let found = session.guidance(in_directory("e", &named)).await.unwrap();
    assert_eq!(
        found.instructions.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        ["sum1.md", "sum2.md"]
    );
    assert!(found.skills.is_empty());
    let text = found.left_out.join("\n");
    for want in [
        "e/AGENTS.md: ",
        "large.md: it is larger",
        "/etc/passwd: it is outside",
        "../x: it is outside",
        "~/x: it is outside",
        "https://example.com/a.md: ",
        "d/link.md: ",
        "missing.md: ",
        "e/loop/x: ",
        "[: ",
    ] {
        assert!(text.contains(want), "{want:?} in {text}");
    }
    assert!(!format!("{found:?}").contains("root:x") && !format!("{found:?}").contains("secret\\n"));
    let found = session.guidance(in_directory("", &["sum*.md"])).await.unwrap();
    assert!(
        found.left_out.join("\n").contains("sum3.md: the instructions are too long together"),
        "{:?}",
        found.left_out
    );
    let too_large: Vec<_> =
        found.too_large.iter().map(|file| (file.path.as_str(), file.reason.as_str())).collect();
    assert_eq!(too_large, [("sum3.md", "the instructions are too long together")]);
}

#[tokio::test]
async fn skills_have_a_name_and_a_description() {
    let (_directory, _machine, session) = fresh(&[]).await;
    session
        .sh("skill() { mkdir -p $1; printf -- \"---\\nname: $2\\ndescription: $3\\nallowed-tools: [a]\\n---\\nbody\\n\" > $1/SKILL.md; }; \
             skill .opencode/skills/one one 'first words'; skill .claude/skills/one one later; skill .agents/skills/deep/er two second; \
             skill elsewhere/three three third; ln -s ../../elsewhere/three .claude/skills/three; \
             mkdir -p .opencode/skill/none; echo text > .opencode/skill/none/SKILL.md; skill .opencode/skill/empty '' x; \
             mkdir -p .opencode/skill/four; skill .opencode/skill/four/five four fourth; ln -s . .opencode/skill/round")
        .await;
    let found = session.guidance(in_directory("", &[])).await.unwrap();
    let skills: Vec<_> =
        found.skills.iter().map(|s| (s.name.as_str(), s.description.as_str(), s.path.as_str())).collect();
    assert_eq!(
        skills,
        [
            ("four", "fourth", ".opencode/skill/four/five/SKILL.md"),
            ("one", "first words", ".opencode/skills/one/SKILL.md"),
            ("three", "third", ".claude/skills/three/SKILL.md"),
            ("two", "second", ".agents/skills/deep/er/SKILL.md"),
        ]
    );
    let text = found.left_out.join("\n");
    for want in [
        "none/SKILL.md: its front matter has no name",
        "empty/SKILL.md: ",
        ".claude/skills/one/SKILL.md: another",
    ] {
        assert!(text.contains(want), "{want:?} in {text}");
    }
}

#[tokio::test]
async fn configuration_comes_from_the_base_commit() {
    let directory = directory();
    let path = repository(directory.path());
    std::fs::create_dir_all(path.join(".opencode/agent/team")).unwrap();
    std::fs::write(path.join("opencode.json"), "{\"permission\":{\"bash\":\"deny\"}}").unwrap();
    std::fs::write(path.join(".opencode/agent/team/review.md"), "Review \u{e4}.").unwrap();
    std::fs::write(path.join(".opencode/agent/notes.txt"), "no").unwrap();
    std::fs::write(path.join("opencode.jsonc"), vec![b'x'; (256 << 10) + 1]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join(".opencode/agent/link.md")).unwrap();
    git(&path, &["add", "."]);
    git(&path, &["commit", "-qm", "settings"]);
    let machine =
        Machine::start_with(directory.path(), &["--file-roots", directory.path().to_str().unwrap()]).await;
    let session = machine.session();
    let opened = session.open_url(&format!("file://{}", path.display())).await.unwrap();
    // Later changes of the files or of the repository's history do not change the configuration.
    session
        .sh("echo '{}' > opencode.json; rm -r .opencode; git commit -qam loosened; rm -rf .git; git init -q")
        .await;
    let found = session.guidance(in_directory("", &[])).await.unwrap();
    let want = [
        (".opencode/agent/team/review.md", "Review \u{e4}."),
        ("opencode.json", "{\"permission\":{\"bash\":\"deny\"}}"),
    ];
    assert_eq!(files(&found.configuration), want);
    assert_eq!(found.left_out, [".opencode/agent/link.md: it is a link", "opencode.jsonc: it is too large"]);
    assert_eq!(found.base_commit, opened.base_commit);
    let request = v1::ReadGuidanceRequest { known_base_commit: opened.base_commit, ..Default::default() };
    assert!(session.guidance(request).await.unwrap().configuration.is_empty());
    let child = session.child();
    assert_eq!(files(&child.guidance(in_directory("", &[])).await.unwrap().configuration), want);
    let successor = Session { epoch: 2, ..session.clone() };
    successor.guidance(in_directory("", &[])).await.unwrap();
    assert_eq!(code(session.guidance(in_directory("", &[])).await), "epoch_stale");
}
