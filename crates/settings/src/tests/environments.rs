//! What the levels say of environments together: images, scripts, variables, secrets, hosts, and git.

use super::{at, merged};
use crate::{document::Document, merge::merge};
use domain::policy::level::Level;

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
        (r#"{"environment": {"setup": "true"}}"#, "an image together with setup"),
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
fn every_level_says_what_people_may_allow() {
    let network = |level: Level, network: &str| {
        at(level, &format!(r#"{{"environment": {{"network": {{{network}}}}}}}"#))
    };
    let all = merged(&[
        network(Level::Tenant, r#""ask": ["*.acme.dev"]"#),
        network(
            Level::Project,
            r#""allow": ["preset:npm"], "ask": ["a.acme.dev", "*.acme.dev"], "setup": ["b.org"]"#,
        ),
    ]);
    let lists: Vec<_> =
        all.settings.network().iter().map(|list| (list.allow.len(), list.ask.len())).collect();
    assert_eq!(lists, [(0, 1), (1, 2)]);
    assert_eq!(all.settings.askable_hosts().into_iter().collect::<Vec<_>>(), ["*.acme.dev", "a.acme.dev"]);
    assert_eq!(all.settings.setup_network.first().unwrap().ask.len(), 0);
    let check = |settings: &crate::Settings, host: &str| {
        let lists = settings.allow_lists();
        lists
            .check(&domain::egress::host::HostName::parse(host).unwrap())
            .err()
            .map(|refusal| format!("{refusal:?}"))
    };
    let refused = r#"NotListed("environment.network in the settings of the tenant")"#;
    assert_eq!(
        check(&all.settings, "registry.npmjs.org").as_deref(),
        Some(refused),
        "its own list of hosts binds"
    );
    assert_eq!(check(&all.settings, "a.acme.dev").as_deref(), Some("NeedsPermission"));
    // A repository opens nothing, and lets people open nothing.
    let alone = merged(&[network(Level::Repository, r#""ask": ["evil.com"]"#)]);
    assert!(alone.settings.askable_hosts().is_empty());
    assert_eq!(check(&alone.settings, "evil.com").as_deref(), Some("NoList"));
    let wrong = merge(&[network(Level::Project, r#""ask": ["*"]"#)]).unwrap_err().to_string();
    assert!(wrong.contains("environment.network.ask[0]: expected a host"), "{wrong}");
}

#[test]
fn secrets_of_scripts_are_merged_by_variable_and_a_repository_has_none() {
    let setting = |level: Level, secrets: &str| {
        at(level, &format!(r#"{{"environment": {{"secrets": {{{secrets}}}}}}}"#))
    };
    let all = merged(&[
        setting(Level::Repository, r#""STOLEN": "GITHUB_TOKEN""#),
        setting(Level::Project, r#""NPM_TOKEN": "NPM_PROJECT", "npm_config__auth": "NPM_AUTH""#),
        setting(Level::Tenant, r#""NPM_TOKEN": "NPM_TENANT", "PIP_TOKEN": "PIP""#),
    ]);
    let secrets: Vec<_> =
        all.settings.secrets.iter().map(|(name, secret)| format!("{name}={secret}")).collect();
    assert_eq!(secrets, ["NPM_TOKEN=NPM_PROJECT", "PIP_TOKEN=PIP", "npm_config__auth=NPM_AUTH"]);
    assert_eq!(all.ignored[0].path.to_string(), "environment.secrets");
    // A later level gives a variable another kind of value.
    let plain = r#"{"environment": {"env": {"NPM_TOKEN": "none"}}}"#;
    let secret = r#"{"environment": {"secrets": {"NPM_TOKEN": "NPM"}}}"#;
    let kinds = |tenant: &str, project: &str| {
        let settings = merged(&[at(Level::Tenant, tenant), at(Level::Project, project)]).settings;
        (settings.variables.len(), settings.secrets.len())
    };
    assert_eq!((kinds(secret, plain), kinds(plain, secret)), ((1, 0), (0, 1)));
    let long = format!("\"{}\": \"A\"", "V".repeat(129));
    for (wrong, found) in [
        (r#""A B": "X""#, "the name of a variable"),
        (r#""HTTPS_PROXY": "X""#, "does not set itself"),
        (long.as_str(), "at most 128 bytes"),
        (r#""A": "ghp_value""#, "the name of a secret"),
        (r#""A": 1"#, "a text"),
        (r#""A": "X"}, "env": {"A": "1""#, "either in env or in secrets"),
    ] {
        let wrong = format!("{{\"environment\": {{\"secrets\": {{{wrong}}}}}}}");
        let problems = merge(&[at(Level::Project, &wrong)]).unwrap_err().to_string();
        assert!(problems.contains(found) && problems.contains(":1:"), "{wrong}: {problems}");
        assert!(!problems.contains("ghp_value"), "{problems}");
    }
    let many = |from: u32, to: u32| {
        (from..to).map(|number| format!(r#""V{number}": "X""#)).collect::<Vec<_>>().join(",")
    };
    let refused = |files: &[Document]| merge(files).unwrap_err().to_string();
    assert!(refused(&[setting(Level::Project, &many(0, 17))]).contains("at most 16 secrets"));
    let both = [setting(Level::Tenant, &many(0, 16)), setting(Level::Project, &many(8, 20))];
    assert!(refused(&both).contains("at most 16 variables in environment.secrets of all files"));
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
