#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use super::{ApiKey, Config, ConfigError, Protocol, from_env, parse};
use domain::money::Rates;

fn env(name: &str) -> Option<String> {
    match name {
        "ANTHROPIC_API_KEY" => Some("sk-a".to_owned()),
        "MY_KEY" => Some(" sk-m ".to_owned()),
        _ => None,
    }
}

fn ok(text: &str) -> Config {
    parse(text, &env).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> Vec<String> {
    match parse(text, &env) {
        Err(ConfigError::Problems(problems)) => problems.into_iter().map(|problem| problem.path).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kind_alone_is_enough_for_a_vendor() {
    let config = ok("[[provider]]\nkind = \"anthropic\"\n[worker]\nslots = 3");
    let (provider, model) = config.providers.find("anthropic", "claude-sonnet-4-5").unwrap();
    assert_eq!(
        (provider.base_url.as_str(), &provider.api_key),
        ("https://api.anthropic.com", &Some(ApiKey::new("sk-a")))
    );
    assert_eq!((model.context_tokens, model.price.base.output), (200_000, 15_000_000));
    assert_eq!(config.default_model.unwrap().0, "anthropic");
    assert_eq!(ok("").default_model, None);
}

#[test]
fn a_server_of_ones_own_describes_its_models() {
    let config = ok(r#"
        model = "mine/big"
        [[provider]]
        id = "mine"
        kind = "openai-chat"
        base_url = "http://localhost:8080/v1"
        api_key_env = "MY_KEY"
        chunk_timeout_ms = 5
        models = [
          { id = "small" },
          { id = "gpt-5", context = 100000 },
          { id = "big", name = "Big", context = 32000, output = 4000, reasoning = true, temperature = false, images = true,
            reasoning_field = "reasoning_content",
            price_usd_per_mtok = { input = 0.5, output = 1, cache_read = 0.0028 },
            tiers = [{ above = 20000, input = 1.0, output = 2.0 }] },
        ]
    "#);
    let find = |id: &str| config.providers.find("mine", id).unwrap();
    let (provider, small) = find("small");
    assert_eq!((provider.protocol, provider.chunk_timeout_ms), (Protocol::OpenAiChat, 5));
    assert_eq!(provider.api_key, Some(ApiKey::new("sk-m")));
    assert_eq!(
        (small.context_tokens, small.output_tokens, small.price.base),
        (128_000, 8_192, Rates::default())
    );
    let gpt = find("gpt-5").1;
    assert_eq!((gpt.context_tokens, gpt.input_tokens, gpt.output_tokens), (100_000, None, 100_000));
    assert_eq!(gpt.price.base.input, 1_250_000);
    let big = find("big").1;
    let base = Rates { input: 500_000, output: 1_000_000, cache_read: 2_800, cache_write: 500_000 };
    let tier = Rates { input: 1_000_000, output: 2_000_000, cache_read: 1_000_000, cache_write: 1_000_000 };
    assert_eq!((big.price.base, big.price.tiers.clone()), (base, vec![(20_000, tier)]));
    assert_eq!(config.default_model, Some(("mine".to_owned(), "big".to_owned())));
    assert_eq!(config.providers.known(), ["mine/small", "mine/gpt-5", "mine/big"]);
}

#[test]
fn every_problem_is_named_with_its_place() {
    let got = problems(
        r#"
        [[provider]]
        kind = "telepathy"
        [[provider]]
        kind = "openai-chat"
        base_url = "ftp://x"
        colour = "red"
        header_timeout_ms = -1
        models = [ 7, { name = "n" }, { id = "a", context = 0, price_usd_per_mtok = { input = -1, currency = "EUR" } } ]
        [[provider]]
        id = "b b"
        kind = "anthropic"
        api_key = "k"
        api_key_env = "MY_KEY"
        [[provider]]
        kind = "openai-chat"
        "#,
    );
    let want = [
        "provider[0].kind",
        "provider[1].header_timeout_ms",
        "provider[1].models[0]",
        "provider[1].models[1].id",
        "provider[1].models[2].context",
        "provider[1].models[2].price_usd_per_mtok.input",
        "provider[1].models[2].price_usd_per_mtok.output",
        "provider[1].models[2].price_usd_per_mtok.currency",
        "provider[1].colour",
        "provider[2].api_key",
        "provider[3].api_key_env",
    ];
    for path in want {
        assert!(got.iter().any(|is| is == path), "{path} is not in {got:?}");
    }
    assert!(
        got.iter().any(|path| path.ends_with(".base_url")) && got.iter().any(|path| path.ends_with(".id"))
    );
    for (text, path) in [
        ("provider = 3", "provider"),
        ("model = \"x/y\"", "model"),
        ("[[provider]]\nkind = \"openai-chat\"\nbase_url = \"http://x\"", "provider[0].models"),
        ("[[provider]]\nkind = \"anthropic\"\n[[provider]]\nkind = \"anthropic\"", "provider[1].id"),
    ] {
        assert_eq!(problems(text), [path], "{text}");
    }
    assert!(matches!(parse("[[provider", &env), Err(ConfigError::Syntax(_))));
}

#[test]
fn the_environment_alone_is_enough() {
    let config = from_env(&env).unwrap();
    assert_eq!(config.providers.list().len(), 1);
    assert_eq!(config.default_model.unwrap().0, "anthropic");
    assert_eq!(from_env(&|_| None).unwrap().default_model, None);
    let bad = |name: &str| Some(if name.ends_with("_KEY") { "k" } else { "nonsense" }.to_owned());
    let error = from_env(&bad).unwrap_err().to_string();
    assert!(error.contains("ANTHROPIC_BASE_URL: ") && error.contains("OPENAI_BASE_URL: "), "{error}");
}

#[test]
fn keys_are_never_shown() {
    let config = from_env(&env).unwrap();
    let shown = format!("{config:?}");
    assert!(shown.contains("***") && !shown.contains("sk-a"), "{shown}");
}

#[test]
fn addresses_are_told_apart_by_their_host() {
    let provider = |url: &str| super::Provider::new("p", Protocol::OpenAiChat, url);
    for (url, is_openai, is_loopback) in [
        ("https://api.openai.com", true, false),
        ("https://api.openai.com/v1/", true, false),
        ("https://api.openai.com.evil.example/v1", false, false),
        ("http://127.0.0.1:8080/v1", false, true),
        ("http://[::1]:8080", false, true),
        ("http://localhost", false, true),
        ("http://127.0.0.1.example", false, false),
    ] {
        assert_eq!(
            (provider(url).is_openai(), provider(url).is_loopback()),
            (is_openai, is_loopback),
            "{url}"
        );
    }
}
