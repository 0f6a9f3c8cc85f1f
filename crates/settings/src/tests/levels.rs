//! Several files: who wins, who binds, and who said what.

use super::{at, merged};
use crate::{
    Settings,
    document::Document,
    merge::{MergedSettings, merge},
    models::Limit,
};
use domain::{
    limits::{SETTINGS_FILES_MAX, SETTINGS_INSTRUCTIONS_MAX},
    policy::{
        level::Level,
        permission::{
            Verdict::{self, Allow, Ask, Deny},
            strictest,
        },
    },
};
use proptest::prelude::*;

fn verdict(merged: &MergedSettings, agent: &str, tool: &str, subject: &str) -> Verdict {
    let lists = merged.settings.rules(agent);
    strictest(&lists.iter().collect::<Vec<_>>(), tool, subject)
}

#[test]
fn no_level_raises_the_depth_of_subtasks_that_another_allows() {
    let of = |levels: &[(Level, &str)]| {
        let files: Vec<_> = levels.iter().map(|(level, text)| at(*level, text)).collect();
        merged(&files).settings.subagent_depth
    };
    let (one, five) = (r#"{"subagent_depth": 1}"#, r#"{"subagent_depth": 5}"#);
    assert_eq!(of(&[(Level::Tenant, one), (Level::Repository, five)]), Some(1));
    assert_eq!(of(&[(Level::Tenant, five), (Level::Repository, one)]), Some(1));
    assert_eq!(of(&[(Level::Repository, five)]), Some(5));
    assert_eq!(of(&[(Level::Tenant, "{}")]), None);
}

#[test]
fn every_level_narrows_the_hosts_that_sessions_reach() {
    let of = |levels: &[(Level, &str)]| {
        let files: Vec<_> = levels.iter().map(|(level, text)| at(*level, text)).collect();
        let settings = merged(&files).settings;
        settings.network().iter().map(|hosts| (hosts.level, hosts.allow.clone())).collect::<Vec<_>>()
    };
    let npm = r#"{"environment": {"network": {"allow": ["preset:npm", "*.acme.dev"]}}}"#;
    let pypi = r#"{"environment": {"network": {"allow": ["pypi.org"]}}}"#;
    let none = r#"{"environment": {"network": {"allow": []}}}"#;
    let allowed = |level, hosts: &[&str]| (level, hosts.iter().map(|host| (*host).to_owned()).collect());
    assert_eq!(
        of(&[(Level::Repository, pypi), (Level::Project, npm), (Level::Platform, none)]),
        [
            allowed(Level::Platform, &[]),
            allowed(Level::Project, &["preset:npm", "*.acme.dev"]),
            allowed(Level::Repository, &["pypi.org"])
        ]
    );
    assert_eq!(of(&[(Level::Repository, pypi)]), [], "a repository alone opens nothing");
    assert_eq!(of(&[(Level::Tenant, "{}")]), []);
}

#[test]
fn a_repository_chooses_no_image() {
    let setting = |reference: &str| {
        format!(r#"{{"environment": {{"image": "{reference}", "image_credential": "LOGIN"}}}}"#)
    };
    let levels = [Level::Repository, Level::Project, Level::Tenant];
    let files = levels.map(|level| at(level, &setting(&format!("r.example.com/{}", level.as_str()))));
    let all = merged(&files);
    let image = all.settings.image.clone().unwrap();
    assert_eq!(
        (image.reference.as_str(), image.credential.as_deref()),
        ("r.example.com/project", Some("LOGIN"))
    );
    let ignored: Vec<_> = all.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
    assert_eq!(ignored, ["environment.image", "environment.image_credential"]);
    assert_eq!(merged(&files[..1]).settings.image, None);
    for wrong in [
        r#"{"environment": {"image": ""}}"#,
        r#"{"environment": {"image": "a b"}}"#,
        r#"{"environment": {"image_credential": "X"}}"#,
        r#"{"environment": {"image": "a", "image_credential": "low"}}"#,
    ] {
        assert!(merge(&[at(Level::Project, wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn install_and_start_need_no_image_and_the_newest_level_wins() {
    let setting =
        |level: &str| format!(r#"{{"environment": {{"install": "npm {level}", "start": "echo {level}"}}}}"#);
    let levels = [Level::Repository, Level::Project, Level::Tenant];
    let files = levels.map(|level| at(level, &setting(level.as_str())));
    let all = merged(&files);
    assert_eq!(all.settings.start.as_deref(), Some("echo project"));
    let ignored: Vec<_> = all.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
    assert_eq!(ignored, ["environment.install", "environment.start"]);
    assert_eq!(all.settings.install.as_deref(), Some("npm project"));
    assert_eq!(merged(&files[..1]).settings.start, None);
    // Another key of the same object changes nothing.
    let other = at(Level::Project, r#"{"environment": {"env": {"CI": "1"}}}"#);
    assert_eq!(merged(&[other, files[2].clone()]).settings.start.as_deref(), Some("echo tenant"));
    for (wrong, found) in [("\" \"", "a script for bash"), ("[\"make\"]", "a text")] {
        let wrong = format!("{{\"environment\":\n{{\"start\": {wrong}}}}}");
        let problems = merge(&[at(Level::Project, &wrong)]).unwrap_err().to_string();
        assert!(problems.contains(found) && problems.contains(":2:"), "{wrong}: {problems}");
    }
}

#[test]
fn a_setup_goes_with_its_image_and_a_repository_has_none() {
    let setting = |level: &str| {
        format!(
            r#"{{"environment": {{"image": "r.example.com/{level}", "setup": "echo {level}",
                "env": {{"LEVEL": "{level}", "OF_{level}": "1"}}, "network": {{"setup": ["{level}.example.com"]}}}}}}"#
        )
    };
    let levels = [Level::Repository, Level::Project, Level::Tenant];
    let files = levels.map(|level| at(level, &setting(level.as_str())));
    let all = merged(&files);
    assert_eq!(all.settings.image.clone().unwrap().setup.as_deref(), Some("echo project"));
    let hosts: Vec<_> = all.settings.setup_network.iter().map(|hosts| hosts.allow.join(" ")).collect();
    assert_eq!(hosts, ["tenant.example.com", "project.example.com"]);
    let variables: Vec<_> =
        all.settings.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(variables, ["LEVEL=project", "OF_project=1", "OF_tenant=1"]);
    let ignored: Vec<_> = all.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
    assert_eq!(
        ignored,
        ["environment.image", "environment.setup", "environment.env", "environment.network.setup"]
    );
    // The image of the project replaces that of the tenant with its setup.
    let plain = at(Level::Project, r#"{"environment": {"image": "r.example.com/plain"}}"#);
    assert_eq!(merged(&[plain, files[2].clone()]).settings.image.unwrap().setup, None);
    for (wrong, found) in [
        (r#"{"environment": {"setup": "true"}}"#, "an image beside setup"),
        (r#"{"environment": {"image": "a", "setup": " "}}"#, "a script for bash"),
        (r#"{"environment": {"image": "a", "setup": ["true"]}}"#, "a text"),
        (r#"{"environment": {"env": {"HOME": "/x"}}}"#, "does not set itself"),
        (r#"{"environment": {"env": {"https_proxy": "/x"}}}"#, "does not set itself"),
        (r#"{"environment": {"env": {"A B": "x"}}}"#, "the name of a variable"),
        (r#"{"environment": {"env": {"A": 1}}}"#, "a text"),
        (r#"{"environment": {"network": {"setup": ["10.0.0.1"]}}}"#, "setup[0]"),
    ] {
        let problems = merge(&[at(Level::Project, wrong)]).unwrap_err().to_string();
        assert!(problems.contains(found) && problems.contains(":1:"), "{wrong}: {problems}");
    }
    let many: Vec<String> = (0..65).map(|number| format!(r#""V{number}": """#)).collect();
    let many = format!(r#"{{"environment": {{"env": {{{}}}}}}}"#, many.join(","));
    assert!(merge(&[at(Level::Project, &many)]).unwrap_err().to_string().contains("at most 64 variables"));
}

#[test]
fn credentials_of_git_are_merged_by_prefix_and_a_repository_has_none() {
    let levels = [
        (
            Level::Repository,
            r#"{"environment": {"git": {"credentials": {"https://evil.example.com/": "GITHUB_TOKEN"}}}}"#,
        ),
        (
            Level::Project,
            r#"{"environment": {"git": {"credentials": {"https://GitHub.com/acme": "PROJECT"}}}}"#,
        ),
        (
            Level::Tenant,
            r#"{"environment": {"git": {"credentials": {"https://github.com/acme/": "TENANT", "https://git.acme.dev:8443": "OWN"}}}}"#,
        ),
    ];
    let files = levels.map(|(level, text)| at(level, text));
    let all = merged(&files);
    let credentials = all.settings.git_credentials.iter();
    let credentials: Vec<_> = credentials.map(|(prefix, secret)| format!("{prefix} {secret}")).collect();
    assert_eq!(credentials, ["https://git.acme.dev:8443/ OWN", "https://github.com/acme PROJECT"]);
    let ignored: Vec<_> = all.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
    assert_eq!(ignored, ["environment.git.credentials"]);
    let many = |from: usize| {
        let entry = |number| format!(r#""https://github.com/{number}/": "TOKEN""#);
        let entries: Vec<_> = (from..from + 32).map(entry).collect();
        format!(r#"{{"environment": {{"git": {{"credentials": {{{}}}}}}}}}"#, entries.join(", "))
    };
    let (first, second) = (many(0), many(1));
    assert_eq!(merged(&[at(Level::Tenant, &first)]).settings.git_credentials.len(), 32);
    let problems = merge(&[at(Level::Tenant, &first), at(Level::Project, &second)]).unwrap_err().to_string();
    assert!(
        problems.contains("at most 32 prefixes in environment.git.credentials of all files"),
        "{problems}"
    );
}

#[test]
fn mistakes_in_credentials_of_git_have_a_line_and_repeat_no_value() {
    for (entry, place, want) in [
        (r#""https://ann:hunter2@github.com/": "TOKEN""#, "1:42", "it names a user"),
        (r#""https://github.com/": "hunter2 is a value""#, "1:65", "expected the name of a secret"),
        (r#""https://github.com/a/../b": "TOKEN""#, "1:42", "empty or a dot, or hides a slash"),
        (r#""https://github.com/a%2fhunter2": "TOKEN""#, "1:42", "hides a slash"),
        (r#""http://github.com/": "TOKEN""#, "1:42", "it does not begin with https://"),
        (r#""https://h.org/a": "A", "https://H.org/a/": "B""#, "1:66", "expected each prefix once"),
    ] {
        let text = format!(r#"{{"environment": {{"git": {{"credentials": {{{entry}}}}}}}}}"#);
        let problems = merge(&[at(Level::Project, &text)]).unwrap_err().to_string();
        assert!(problems.contains(place) && problems.contains(want), "{entry}: {problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn rules_for_pushes_are_merged_by_prefix_and_a_repository_has_none() {
    let push = |rules: &str| format!(r#"{{"environment": {{"git": {{"push": {{{rules}}}}}}}}}"#);
    let repository = push(r#""https://github.com/": {"credential": "GITHUB_TOKEN"}"#);
    let tenant = push(
        r#""https://github.com/acme/": {"credential": "TENANT", "deny": ["deploy/**"]}, "https://git.acme.dev": {"credential": "OWN"}"#,
    );
    let project = push(r#""https://GitHub.com/acme": {"credential": "PROJECT", "branches": "bots/acme/"}"#);
    let all = merged(&[
        at(Level::Repository, &repository),
        at(Level::Tenant, &tenant),
        at(Level::Project, &project),
    ]);
    let rules = all.settings.git_push.iter();
    let rules: Vec<_> = rules
        .map(|(prefix, rule)| format!("{prefix} {} {} {:?}", rule.credential, rule.branches, rule.deny))
        .collect();
    assert_eq!(
        rules,
        ["https://git.acme.dev/ OWN agent/ []", "https://github.com/acme PROJECT bots/acme/ []"]
    );
    let ignored: Vec<_> = all.ignored.iter().map(|ignored| ignored.path.to_string()).collect();
    assert_eq!(ignored, ["environment.git.push"]);
    assert_eq!(all.settings.git_credentials, [].into(), "a token that pushes reads nothing for sessions");
    let reading = r#"{"environment": {"git": {"credentials": {"https://github.com/acme/": "TOKEN"}}}}"#;
    assert_eq!(merged(&[at(Level::Tenant, reading)]).settings.git_push, [].into(), "and the other way round");
    let many = |from: usize| {
        let entries: Vec<_> = (from..from + 32)
            .map(|number| format!(r#""https://github.com/{number}/": {{"credential": "TOKEN"}}"#))
            .collect();
        push(&entries.join(", "))
    };
    let problems =
        merge(&[at(Level::Tenant, &many(0)), at(Level::Project, &many(1))]).unwrap_err().to_string();
    assert!(problems.contains("at most 32 prefixes in environment.git.push of all files"), "{problems}");
}

#[test]
fn mistakes_in_rules_for_pushes_have_a_line_and_repeat_no_value() {
    for (entry, want) in [
        (r#""https://ann:hunter2@github.com/": {"credential": "T"}"#, "it names a user"),
        (r#""https://github.com/": "TOKEN""#, "expected an object"),
        (r#""https://github.com/": {}"#, "expected a credential"),
        (r#""https://github.com/": {"credential": "hunter2 is a value"}"#, "expected the name of a secret"),
        (r#""https://github.com/": {"credential": "T", "branches": "agent"}"#, "with a slash at its end"),
        (
            r#""https://github.com/": {"credential": "T", "branches": "refs/heads/"}"#,
            "with a slash at its end",
        ),
        (
            r#""https://github.com/": {"credential": "T", "deny": ["/etc/**"]}"#,
            "expected a path of the repository",
        ),
        (r#""https://github.com/": {"credential": "T", "deny": "x"}"#, "expected a list of paths"),
        (r#""https://github.com/": {"credential": "T", "force": true}"#, "one of branches, credential, deny"),
        (
            r#""https://h.org/a": {"credential": "A"}, "https://H.org/a/": {"credential": "B"}"#,
            "each prefix once",
        ),
    ] {
        let text = format!(r#"{{"environment": {{"git": {{"push": {{{entry}}}}}}}}}"#);
        let problems = merge(&[at(Level::Project, &text)]).unwrap_err().to_string();
        assert!(problems.contains("1:") && problems.contains(want), "{entry}: {problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn a_later_level_wins_whatever_the_order_of_the_files() {
    let mut files = [
        at(
            Level::Platform,
            r#"{"model": "a/platform", "small_model": "a/platform", "compaction": {"auto": true, "reserved": 5}}"#,
        ),
        at(
            Level::Tenant,
            r#"{"model": "a/tenant", "agent": {"x": {"prompt": "tenant", "hidden": true, "options": {"a": [1, 2], "b": 1}}}}"#,
        ),
        at(Level::Project, r#"{"compaction": {"reserved": 6}}"#),
        at(
            Level::Repository,
            r#"{"model": "a/repository", "agent": {"x": {"prompt": "repository", "options": {"a": [3]}}}}"#,
        ),
    ];
    for _ in 0..files.len() {
        files.rotate_left(1);
        let settings = merged(&files).settings;
        let name = |model: Option<domain::conversation::message::ModelRef>| model.map(|model| model.model_id);
        assert_eq!(name(settings.model), Some("repository".into()));
        assert_eq!(name(settings.small_model), Some("platform".into()));
        assert_eq!((settings.compaction.auto, settings.compaction.reserved), (Some(true), Some(6)));
        let agent = &settings.agents["x"];
        assert_eq!((agent.prompt.as_deref(), agent.hidden), (Some("repository"), Some(true)));
        assert_eq!(
            serde_json::to_string(&agent.options.0).unwrap(),
            r#"{"a":[3],"b":1}"#,
            "a list is one value"
        );
    }
}

#[test]
fn instructions_are_added_without_doubles() {
    let files = [
        at(Level::Tenant, r#"{"instructions": ["a", "b", "a"]}"#),
        at(Level::Repository, r#"{"instructions": ["c", "b"]}"#),
        at(Level::Repository, r#"{"instructions": ["c", "d"]}"#),
    ];
    assert_eq!(merged(&files).settings.instructions, ["a", "b", "c", "d"]);
}

#[test]
fn a_repository_narrows_and_never_widens() {
    let files = [
        at(
            Level::Tenant,
            r#"{"permission": {"bash": {"*": "ask", "rm *": "deny"}, "read": "allow"}, "agent": {"x": {"permission": {"glob": "deny"}}}}"#,
        ),
        at(
            Level::Repository,
            r#"{"permission": {"*": "allow", "bash": "allow", "read": "ask"},
            "agent": {"x": {"permission": "allow", "disable": false}, "y": {"tools": {"bash": false}}}}"#,
        ),
    ];
    let merged = merged(&files);
    for (agent, tool, subject, want) in [
        ("build", "bash", "ls", Ask),
        ("build", "bash", "rm x", Deny),
        ("build", "read", "a", Ask),
        ("build", "glob", "a", Allow),
        ("x", "bash", "rm x", Deny),
        ("x", "glob", "a", Deny),
        ("y", "bash", "ls", Deny),
        ("y", "glob", "a", Allow),
    ] {
        assert_eq!(verdict(&merged, agent, tool, subject), want, "{agent} {tool} {subject}");
    }
    let levels: Vec<_> = merged.settings.permission.iter().map(|list| list.level).collect();
    assert_eq!(levels, [Level::Tenant, Level::Repository]);
    assert_eq!(merged.settings.rules("x").len(), 2);
}

#[test]
fn every_level_narrows_which_models_are_asked_and_with_how_much_room() {
    let files = [
        at(
            Level::Tenant,
            r#"{"enabled_providers": ["a", "b"], "provider": {"a": {"blacklist": ["dear"],
                "models": {"m": {"limit": {"context": 100, "output": 10}}}}}}"#,
        ),
        at(
            Level::Repository,
            r#"{"enabled_providers": ["a", "c"], "disabled_providers": ["b"], "provider": {
                "a": {"whitelist": ["m", "n", "dear"], "models": {"m": {"limit": {"context": 900, "input": 50, "output": 5}}}}}}"#,
        ),
    ];
    let settings = merged(&files).settings;
    let model = |text: &str| {
        let (provider, model) = text.split_once('/').unwrap();
        domain::conversation::message::ModelRef { provider_id: provider.into(), model_id: model.into() }
    };
    for (name, want) in
        [("a/m", true), ("a/n", true), ("a/dear", false), ("a/other", false), ("b/m", false), ("c/m", false)]
    {
        assert_eq!(settings.allows(&model(name)), want, "{name}");
    }
    let limit = |context, input, output| Limit { context, input, output };
    assert_eq!(settings.limit(&model("a/m")), limit(Some(100), Some(50), Some(5)));
    assert_eq!(settings.limit(&model("a/n")), Limit::default());
    assert!(Settings::default().allows(&model("x/y")));
}

#[test]
fn inside_a_level_the_later_file_wins_permissions_too() {
    let files = [
        at(Level::Project, r#"{"permission": {"bash": "deny", "read": {"*": "ask", "b": "deny"}}}"#),
        at(Level::Project, r#"{"permission": {"bash": "allow", "read": {"b": "allow"}}}"#),
    ];
    let merged = merged(&files);
    for (tool, subject, want) in [("bash", "a", Allow), ("read", "a", Ask), ("read", "b", Allow)] {
        assert_eq!(verdict(&merged, "build", tool, subject), want, "{tool} {subject}");
    }
}

#[test]
fn every_value_is_explained_with_its_origin() {
    let tenant = r#"{"model": "a/b", "permission": {"bash": "ask"}, "instructions": ["a"],
 "provider": {"p": {"options": {"apiKey": "hush"}, "models": {"m": {"limit": {"context": 9}, "cost": {}}}}}, "theme": "dark"}"#;
    let repository = r#"{"model": "c/d", "instructions": ["b"],
 "agent": {"x": {"steps": 3, "apiKey": "hush", "headers": {"X": "hush"}, "permission": {"token*": "deny"}}}}"#;
    let files = [
        Document::json(Level::Tenant, "tenant.json", tenant).unwrap(),
        Document::json(Level::Repository, "opencode.json", repository).unwrap(),
    ];
    let rows: Vec<_> = merged(&files)
        .explain()
        .into_iter()
        .map(|row| format!("{} = {} ({} {})", row.path, row.value, row.origin.level.as_str(), row.origin))
        .collect();
    let want = [
        "instructions[0] = \"a\" (tenant tenant.json:1:66)",
        "instructions[1] = \"b\" (repository opencode.json:1:35)",
        "model = \"c/d\" (repository opencode.json:1:11)",
        "agent.x.steps = 3 (repository opencode.json:2:27)",
        "agent.x.apiKey = \"***\" (repository opencode.json:2:40)",
        "agent.x.headers.X = \"***\" (repository opencode.json:2:65)",
        "permission.bash = \"ask\" (tenant tenant.json:1:41)",
        "provider.p.models.m.limit.context = 9 (tenant tenant.json:2:90)",
        "agent.x.permission.\"token*\" = \"deny\" (repository opencode.json:2:99)",
    ];
    assert_eq!(rows, want);
}

#[test]
fn what_is_too_much_only_together_is_refused() {
    let list = |from: usize, count: usize| {
        let names: Vec<_> = (from..from + count).map(|n| format!("\"{n}\"")).collect();
        at(Level::Project, &format!("{{\"instructions\": [{}]}}", names.join(",")))
    };
    let half = SETTINGS_INSTRUCTIONS_MAX / 2;
    merged(&[list(0, half), list(half, half)]);
    let problems = merge(&[list(0, half), list(half, half), list(2 * half, 1)]).unwrap_err().to_string();
    assert_eq!(problems, "opencode.json:1:18: instructions: expected at most 64 instructions, found 65");
    let files = vec![at(Level::Project, "{}"); SETTINGS_FILES_MAX + 1];
    let problems = merge(&files).unwrap_err().to_string();
    assert_eq!(problems, "opencode.json:1:1: expected at most 400 files, found 401");
}

#[test]
fn the_mistakes_of_all_files_are_told() {
    let problems =
        merge(&[at(Level::Tenant, r#"{"a": 1}"#), at(Level::Repository, r#"{"b": 1}"#)]).unwrap_err();
    let paths: Vec<_> = problems.list.iter().map(|problem| problem.path.to_string()).collect();
    assert_eq!(paths, ["a", "b"]);
}

/// Permissions of one file, for every agent and for `x`.
fn any_permissions() -> impl Strategy<Value = String> {
    let tool = prop::sample::select(&["*", "bash", "edit", "re?d"][..]);
    let pattern = prop::sample::select(&["*", "a*", "ab"][..]);
    let verdict = prop::sample::select(&["allow", "ask", "deny"][..]);
    let map = move || {
        let rule = (tool.clone(), pattern.clone(), verdict.clone());
        prop::collection::vec(rule, 0..5).prop_map(|rules| {
            let mut tools = serde_json::Map::new();
            for (tool, pattern, verdict) in rules {
                tools.entry(tool).or_insert_with(|| serde_json::json!({}))[pattern] = verdict.into();
            }
            serde_json::Value::Object(tools)
        })
    };
    (map(), map()).prop_map(|(all, own)| {
        serde_json::json!({"permission": all, "agent": {"x": {"permission": own}}}).to_string()
    })
}

proptest! {
    /// Whatever lower levels write, nothing is permitted that the levels above them do not permit.
    #[test]
    fn no_lower_level_widens(texts in prop::collection::vec(any_permissions(), 4)) {
        let files: Vec<_> = Level::ALL.into_iter().zip(&texts).map(|(level, text)| at(level, text)).collect();
        let whole = merged(&files);
        for above in 0..files.len() {
            let upper = merged(&files[..above]);
            for (tool, subject) in [("bash", "ab"), ("write", "b"), ("edit", "a"), ("read", "ab"), ("task", "")] {
                for agent in ["x", "build"] {
                    prop_assert!(verdict(&whole, agent, tool, subject) >= verdict(&upper, agent, tool, subject));
                }
            }
        }
    }
}
