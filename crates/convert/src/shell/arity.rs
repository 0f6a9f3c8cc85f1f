//! The number of words that name the action of a program: `git commit`, `npm run build`. An answer "always" allows
//! exactly that: more than this one commit message, but less than all of `git`.

/// Programs whose sub-commands perform different actions, with the number of words that name the action. The longest
/// matching entry counts; the action of an unlisted program is its first word.
const NAMED_BY: &[(&str, usize)] = &[
    ("ansible-galaxy", 2),
    ("apt", 2),
    ("apt-get", 2),
    ("aws", 3),
    ("az", 3),
    ("bazel", 2),
    ("brew", 2),
    ("buf", 2),
    ("bun", 2),
    ("bun run", 3),
    ("bun x", 3),
    ("bundle", 2),
    ("bundle exec", 3),
    ("cargo", 2),
    ("composer", 2),
    ("conda", 2),
    ("deno", 2),
    ("deno task", 3),
    ("docker", 2),
    ("docker buildx", 3),
    ("docker compose", 3),
    ("docker container", 3),
    ("docker image", 3),
    ("docker network", 3),
    ("docker system", 3),
    ("docker volume", 3),
    ("dotnet", 2),
    ("firebase", 2),
    ("flutter", 2),
    ("gcloud", 3),
    ("gh", 3),
    ("git", 2),
    ("git config", 3),
    ("git remote", 3),
    ("git stash", 3),
    ("git submodule", 3),
    ("git worktree", 3),
    ("go", 2),
    ("go mod", 3),
    ("gradle", 2),
    ("helm", 2),
    ("kubectl", 2),
    ("kubectl config", 3),
    ("kubectl rollout", 3),
    ("make", 2),
    ("mise", 2),
    ("mvn", 2),
    ("nix", 2),
    ("npm", 2),
    ("npm exec", 3),
    ("npm run", 3),
    ("npx", 2),
    ("openssl", 2),
    ("pip", 2),
    ("pip3", 2),
    ("pipenv", 2),
    ("pnpm", 2),
    ("pnpm dlx", 3),
    ("pnpm exec", 3),
    ("pnpm run", 3),
    ("podman", 2),
    ("podman container", 3),
    ("poetry", 2),
    ("poetry run", 3),
    ("prisma", 2),
    ("pulumi", 2),
    ("python -m", 3),
    ("python3 -m", 3),
    ("rails", 2),
    ("rake", 2),
    ("redis-cli", 2),
    ("rustup", 2),
    ("sbt", 2),
    ("svn", 2),
    ("systemctl", 2),
    ("terraform", 2),
    ("terraform workspace", 3),
    ("turbo", 2),
    ("uv", 2),
    ("uv pip", 3),
    ("uv run", 3),
    ("vercel", 2),
    ("yarn", 2),
    ("yarn dlx", 3),
    ("yarn run", 3),
];

/// The words of a command that name its action. `None` if one of them is a wildcard in rules, because the pattern would
/// allow too much.
pub(super) fn prefix<'a>(line: &[&'a str]) -> Option<Vec<&'a str>> {
    let fits = |(name, _): &&(&str, usize)| {
        let mut words = name.split(' ');
        let count = name.split(' ').count();
        line.len() >= count && line[..count].iter().all(|word| words.next() == Some(word))
    };
    let longest = NAMED_BY.iter().filter(fits).max_by_key(|(name, _)| name.len());
    let word_count = longest.map_or(1, |(_, words)| *words);
    // An option changes how the action runs: the action of `git -C dir` is its first word.
    let words = line.iter().enumerate();
    let keep = words.take_while(|(at, word)| *at == 0 || !word.starts_with('-') || is_module(line, *at));
    let keep: Vec<&str> = keep.map(|(_, word)| *word).take(word_count).collect();
    keep.iter().all(|word| !word.contains(['*', '?'])).then_some(keep)
}

/// The action of `python -m pytest` is its module.
fn is_module(line: &[&str], at: usize) -> bool {
    at == 1 && line[1] == "-m" && line[0].starts_with("python")
}
