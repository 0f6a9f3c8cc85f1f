//! One toolchain: from Debian's packages in a setup to the tests of a small project in a session.

use super::stack::{RunningStack, text};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use testkit::git;

/// A toolchain to show, with a project that uses it.
#[derive(Debug)]
pub(super) struct Toolchain {
    pub(super) name: &'static str,
    /// The environment that the repository describes, without its image.
    environment: &'static str,
    /// The further files of the repository.
    files: &'static [(&'static str, &'static str)],
    /// The registries of packages that the environment needs in addition to Debian's.
    pub(super) registries: &'static [&'static str],
    /// The command that runs the tests.
    test: &'static str,
    /// What the command prints if the tests have run and passed.
    prints: &'static [&'static str],
}

/// The content of a file below `tests/demo/toolchains`.
macro_rules! content {
    ($path:literal) => {
        include_str!(concat!("../../demo/toolchains/", $path))
    };
}

pub(super) const TOOLCHAINS: [Toolchain; 14] = [
    Toolchain {
        name: "python",
        environment: content!("python/config.yaml"),
        files: &[
            ("requirements.txt", content!("python/requirements.txt")),
            ("test_toolchain.py", content!("python/test_toolchain.py")),
            (".gitignore", ".venv/\n__pycache__/\n.pytest_cache/\n"),
        ],
        registries: &["pypi.org", "files.pythonhosted.org"],
        test: ".venv/bin/python -m pytest --quiet --capture=no",
        prints: &["escapes &lt;b&gt;", "4 passed"],
    },
    Toolchain {
        name: "node",
        environment: content!("node/config.yaml"),
        files: &[
            ("package.json", content!("node/package.json")),
            ("package-lock.json", content!("node/package-lock.json")),
            ("toolchain.test.js", content!("node/toolchain.test.js")),
            (".gitignore", "node_modules/\n"),
        ],
        registries: &["registry.npmjs.org"],
        test: "npm test",
        prints: &["# pass 3", "# fail 0"],
    },
    Toolchain {
        name: "rust",
        environment: content!("rust/config.yaml"),
        files: &[
            ("Cargo.toml", content!("rust/Cargo.toml")),
            ("Cargo.lock", content!("rust/Cargo.lock")),
            ("src/lib.rs", content!("rust/src/lib.rs")),
            (".gitignore", ".cache/\ntarget/\n"),
        ],
        registries: &["index.crates.io", "static.crates.io"],
        test: "cargo test --offline",
        prints: &["test result: ok. 4 passed; 0 failed"],
    },
    Toolchain {
        name: "uv",
        environment: content!("uv/config.yaml"),
        files: &[
            ("pyproject.toml", content!("uv/pyproject.toml")),
            ("uv.lock", content!("uv/uv.lock")),
            ("test_toolchain.py", content!("uv/test_toolchain.py")),
            (".gitignore", ".venv/\n__pycache__/\n.pytest_cache/\n"),
        ],
        registries: &["pypi.org", "files.pythonhosted.org"],
        test: ".venv/bin/python -m pytest --quiet",
        prints: &["1 passed"],
    },
    Toolchain {
        name: "poetry",
        environment: content!("poetry/config.yaml"),
        files: &[
            ("pyproject.toml", content!("poetry/pyproject.toml")),
            ("poetry.lock", content!("poetry/poetry.lock")),
            ("test_toolchain.py", content!("poetry/test_toolchain.py")),
            (".gitignore", ".venv/\n__pycache__/\n.pytest_cache/\n"),
        ],
        registries: &["pypi.org", "files.pythonhosted.org"],
        test: ".venv/bin/python -m pytest --quiet",
        prints: &["1 passed"],
    },
    Toolchain {
        name: "rustup",
        environment: content!("rustup/config.yaml"),
        files: &[
            ("Cargo.toml", content!("rust/Cargo.toml")),
            ("Cargo.lock", content!("rust/Cargo.lock")),
            ("src/lib.rs", content!("rust/src/lib.rs")),
            (".gitignore", ".cache/\ntarget/\n"),
        ],
        registries: &["static.rust-lang.org", "index.crates.io", "static.crates.io"],
        test: "rustc --version && cargo test --offline 2>&1",
        // What the install has compiled is not compiled again.
        prints: &["rustc 1.88.0", "Finished `test` profile", "test result: ok. 4 passed; 0 failed"],
    },
    Toolchain {
        name: "node-version",
        environment: content!("node-version/config.yaml"),
        files: &[
            ("package.json", content!("node/package.json")),
            ("package-lock.json", content!("node/package-lock.json")),
            ("toolchain.test.js", content!("node/toolchain.test.js")),
            (".gitignore", "node_modules/\n"),
        ],
        registries: &["registry.npmjs.org"],
        test: "node --version && npm test",
        prints: &["v22.12.0", "# pass 3", "# fail 0"],
    },
    Toolchain {
        name: "autotools",
        environment: content!("autotools/config.yaml"),
        files: &[
            ("configure.ac", content!("autotools/configure.ac")),
            ("Makefile.am", content!("autotools/Makefile.am")),
            ("sum.c", content!("autotools/sum.c")),
            ("check.c", content!("autotools/check.c")),
        ],
        registries: &[],
        test: "mkdir -p /tmp/build && cp -r . /tmp/build && cd /tmp/build && autoreconf --install && ./configure && make check",
        prints: &["# PASS:  1", "# FAIL:  0"],
    },
    Toolchain {
        name: "go",
        environment: content!("go/config.yaml"),
        files: &[
            ("go.mod", content!("go/go.mod")),
            ("toolchain_test.go", content!("go/toolchain_test.go")),
            (".gitignore", ".cache/\n"),
        ],
        registries: &[],
        test: "go vet ./... && go test -race -v ./...",
        prints: &["--- PASS: TestAServer", "ok  \texample.com/toolchain"],
    },
    Toolchain {
        name: "java",
        environment: content!("java/config.yaml"),
        files: &[
            ("pom.xml", content!("java/pom.xml")),
            ("src/test/java/demo/ToolchainTest.java", content!("java/src/test/java/demo/ToolchainTest.java")),
            (".gitignore", ".cache/\ntarget/\n"),
        ],
        registries: &[],
        test: "mvn --batch-mode --no-transfer-progress test",
        prints: &["Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", "BUILD SUCCESS"],
    },
    Toolchain {
        name: "c",
        environment: content!("c/config.yaml"),
        files: &[
            ("Makefile", content!("c/Makefile")),
            ("mistakes.c", content!("c/mistakes.c")),
            (".gitignore", "/sanitized\n/threaded\n/plain\n/calls\n"),
        ],
        registries: &[],
        test: "make --silent check",
        prints: &[
            "ERROR: AddressSanitizer: heap-buffer-overflow on address",
            "9 byte(s) leaked in 1 allocation(s)",
            "cannot be represented in type 'int'",
            "ThreadSanitizer: data race /workspace/mistakes.c",
            "$1 = 41",
        ],
    },
    Toolchain {
        name: "chromium",
        environment: content!("chromium/config.yaml"),
        files: &[
            ("check.sh", content!("chromium/check.sh")),
            ("page.html", content!("chromium/page.html")),
            ("numbers.json", content!("chromium/numbers.json")),
        ],
        registries: &[],
        test: "./check.sh",
        prints: &["the sum is 2050", "89 50 4e 47"],
    },
    Toolchain {
        name: "postgres",
        environment: content!("postgres/config.yaml"),
        files: &[("check.sql", content!("postgres/check.sql"))],
        registries: &[],
        test: "psql --no-psqlrc --no-align --tuples-only --file=check.sql",
        prints: &["PostgreSQL 1", "Workers Launched: 2", "page 0|35000350000"],
    },
    Toolchain {
        name: "redis",
        environment: content!("redis/config.yaml"),
        files: &[("check.sh", content!("redis/check.sh"))],
        registries: &[],
        test: "./check.sh",
        prints: &["5050", "rdb_last_bgsave_status:ok"],
    },
];

/// Has an environment built on top of the image, and the tests run in a session. Returns the lines that show that they ran.
pub(super) async fn show(stack: &RunningStack, image: &str, toolchain: &Toolchain) -> Result<String> {
    let environment = toolchain.environment.replacen('\n', &format!("\n  image: {image}\n"), 1);
    let mut files = toolchain.files.to_vec();
    files.push((".flotilla/config.yaml", environment.as_str()));
    let repository = git::repository(&files);
    let path = repository.path();
    let path = text(&path)?;
    stack.flotilla(&["env", "check", "--repo", path, "--allow", "--", "true"]).await?;
    let run = json!({"command": toolchain.test, "timeout": 300_000});
    let prompt = format!("Run the tests.\n@tool bash {run}\n@text The tests ran.");
    stack.flotilla(&["run", "--repo", path, &prompt]).await?;
    let session = stack.newest_session().await?;
    let outputs = stack.bash_outputs(&session).await?;
    ensure!(outputs.len() == 1, "the tests should run once: {outputs:?}");
    let lines = lines_with(toolchain.prints, &outputs[0])?;
    remove(stack, &session).await?;
    Ok(lines)
}

/// The lines of an output that have these texts.
fn lines_with(texts: &[&str], output: &str) -> Result<String> {
    let mut lines = vec![];
    for text in texts {
        let line = output.lines().find(|line| line.contains(text));
        lines.push(line.with_context(|| format!("the tests should print {text:?}: {output}"))?.trim());
    }
    Ok(lines.join("; "))
}

/// Deletes a session and what was built for its project, which takes up to a GiB.
async fn remove(stack: &RunningStack, session: &str) -> Result<()> {
    stack.flotilla(&["delete", session]).await?;
    for environment in stack.objects(&["env", "ls", "--json"]).await? {
        stack.flotilla(&["env", "rm", environment["key"].as_str().context("a key")?]).await?;
    }
    Ok(())
}
