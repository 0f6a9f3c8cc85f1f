// The bare repositories and emulate's copy of them. What moves on one side moves on the other, and is announced.
import { existsSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { giveCommit, takeObjects } from "./objects.mjs"
import { git, succeeds, text } from "./program.mjs"
import { offer } from "./webhooks.mjs"

/** The name of no object. */
const NOTHING = "0".repeat(40)
/** Commits that the announcement of a push lists. */
const COMMITS_MAX = 20

/** The bare directory of a repository, which is made for one that the API made. */
export function directoryOf({ root }, repo) {
  const directory = join(root, `${repo.full_name}.git`)
  if (!existsSync(directory)) {
    mkdirSync(directory, { recursive: true })
    git(directory, ["init", "--quiet", "--bare", "--initial-branch=main"])
  }
  return directory
}

const references = (directory) => {
  const lines = text(directory, ["for-each-ref", "--format=%(refname) %(objectname)"]).split("\n").filter(Boolean)
  return new Map(lines.map((line) => line.split(" ")))
}

const copied = ({ gh }, repo) => new Map(gh.refs.findBy("repo_id", repo.id).map(({ ref, sha }) => [ref, sha]))

function setReference({ gh }, repo, ref, sha) {
  const row = gh.refs.findBy("repo_id", repo.id).find((row) => row.ref === ref)
  const name = /^refs\/heads\/(.+)/.exec(ref)?.[1]
  const branch = gh.branches.findBy("repo_id", repo.id).find((row) => row.name === name)
  if (!sha) {
    if (row) gh.refs.delete(row.id)
    if (branch) gh.branches.delete(branch.id)
    return
  }
  if (row) gh.refs.update(row.id, { sha })
  else gh.refs.insert({ repo_id: repo.id, ref, sha, node_id: Buffer.from(`${repo.id}${ref}`).toString("base64") })
  if (branch) gh.branches.update(branch.id, { sha })
  else if (name) gh.branches.insert({ repo_id: repo.id, name, sha, protected: false })
}

/** Takes over what was pushed to the bare repository. Announces it if a sender did it. */
export function read(forge, repo, sender) {
  const directory = directoryOf(forge, repo)
  const [before, after] = [copied(forge, repo), references(directory)]
  takeObjects(forge, repo, directory, [...after.values()])
  for (const ref of new Set([...before.keys(), ...after.keys()])) setReference(forge, repo, ref, after.get(ref))
  announce(forge, repo, { before, after, sender })
}

/** Takes over what the API changed, and announces it. */
export function write(forge, repo, sender) {
  const directory = directoryOf(forge, repo)
  const [before, after] = [references(directory), copied(forge, repo)]
  for (const [ref, sha] of after) {
    if (before.get(ref) === sha) continue
    giveCommit(forge, repo, directory, sha)
    git(directory, ["update-ref", ref, sha])
  }
  for (const ref of before.keys()) if (!after.has(ref)) git(directory, ["update-ref", "-d", ref])
  announce(forge, repo, { before, after, sender })
}

/** Gives a new fork the commits of its parent. emulate gives it one of its own. */
export async function fork(forge, parent, response) {
  const { full_name } = await response.clone().json()
  const from = directoryOf(forge, parent)
  git(from, ["clone", "--quiet", "--bare", from, join(forge.root, `${full_name}.git`)])
  read(forge, forge.repository(full_name))
}

/** Says which branches and tags moved, and moves the pull requests with them. */
function announce(forge, repo, { before, after, sender }) {
  for (const ref of new Set([...before.keys(), ...after.keys()])) {
    const [from, to] = [before.get(ref), after.get(ref)]
    const [, kind, name] = /^refs\/(heads|tags)\/(.+)/.exec(ref) ?? []
    if (from === to || !kind) continue
    if (sender) announceOne(forge, repo, { ref, kind, name, from, to, sender })
    if (kind === "heads") movePulls(forge, repo, { name, from, to, sender })
  }
}

function announceOne(forge, repo, { ref, kind, name, from, to, sender }) {
  const common = { repository: repo.full_name, sender }
  const ref_type = kind === "heads" ? "branch" : "tag"
  const moved = { ref: name, ref_type, master_branch: repo.default_branch, pusher_type: "user", ...common }
  if (!from) offer(forge, "create", { description: null, ...moved })
  if (!to) offer(forge, "delete", moved)
  const [old, recent] = [from ?? NOTHING, to ?? NOTHING]
  const directory = directoryOf(forge, repo)
  const commits = to && kind === "heads" ? listCommits(forge, repo, from, to) : []
  offer(forge, "push", {
    ref, before: old, after: recent, base_ref: null, created: !from, deleted: !to,
    forced: Boolean(from && to && !succeeds(directory, ["merge-base", "--is-ancestor", from, to])),
    compare: `${forge.url}/${repo.full_name}/compare/${old.slice(0, 12)}...${recent.slice(0, 12)}`,
    commits, head_commit: commits.at(-1) ?? null,
    pusher: { name: sender.login, email: `${sender.login}@example.com` }, ...common,
  })
}

/** The commits of a push, the newest last. Those of a new branch are the ones that no other branch has. */
function listCommits({ gh, url, root }, repo, from, to) {
  const directory = directoryOf({ root }, repo)
  const others = gh.branches.findBy("repo_id", repo.id).filter(({ sha }) => sha !== to).map(({ sha }) => `^${sha}`)
  const bounds = from ? [`^${from}`] : others
  const listed = text(directory, ["rev-list", "--reverse", `--max-count=${COMMITS_MAX}`, to, ...bounds])
  return listed.split("\n").filter(Boolean).map((sha) => {
    const row = gh.commits.findBy("sha", sha).find((row) => row.repo_id === repo.id)
    const options = ["--root", "--no-commit-id", "--name-status", "--no-renames", "-r"]
    const lines = text(directory, ["diff-tree", ...options, sha]).split("\n")
    const files = (status) => lines.filter((line) => line.startsWith(status)).map((line) => line.split("\t")[1])
    const who = (kind) => {
      const [name, email] = [row[`${kind}_name`], row[`${kind}_email`]]
      return { name, email, username: gh.users.all().find((user) => user.email === email)?.login }
    }
    return {
      id: sha, tree_id: row.tree_sha, distinct: true, message: row.message, timestamp: row.author_date,
      url: `${url}/${repo.full_name}/commit/${sha}`, author: who("author"), committer: who("committer"),
      added: files("A"), removed: files("D"), modified: files("M"),
    }
  })
}

function movePulls(forge, repo, { name, from, to, sender }) {
  const { gh } = forge
  const open = gh.pullRequests.all().filter(({ state }) => state === "open")
  for (const pull of open.filter((row) => row.head_repo_id === repo.id && row.head_ref === name)) {
    const base = gh.repos.get(pull.base_repo_id)
    const payload = { number: pull.number, pull_request: pull.number, repository: base.full_name, sender }
    if (!to) {
      const closed = { state: "closed", closed_at: new Date().toISOString() }
      gh.pullRequests.update(pull.id, closed)
      const issue = gh.issues.findBy("repo_id", base.id).find((row) => row.number === pull.number)
      gh.issues.update(issue.id, closed)
      if (sender) offer(forge, "pull_request", { action: "closed", ...payload })
    } else {
      measure(forge, gh.pullRequests.update(pull.id, { head_sha: to }))
      if (sender) offer(forge, "pull_request", { action: "synchronize", before: from, after: to, ...payload })
    }
  }
  for (const pull of open.filter((row) => to && row.base_repo_id === repo.id && row.base_ref === name))
    measure(forge, gh.pullRequests.update(pull.id, { base_sha: to }))
}

/** The tree of both sides of a pull request together. `undefined`: they are in conflict. */
export function mergedTree(directory, pull) {
  const args = ["merge-tree", "--write-tree", "--no-messages", pull.base_sha, pull.head_sha]
  return succeeds(directory, args) ? text(directory, args).split("\n")[0] : undefined
}

/** Fetches the head of a pull request, as `refs/pull/1/head`, and counts what it changes. emulate counts nothing. */
export function measure(forge, pull) {
  const { gh } = forge
  const [base, head] = [gh.repos.get(pull.base_repo_id), gh.repos.get(pull.head_repo_id)]
  const directory = directoryOf(forge, base)
  const ref = `refs/pull/${pull.number}/head`
  if (base.id === head.id) git(directory, ["update-ref", ref, pull.head_sha])
  else {
    const what = `+refs/heads/${pull.head_ref}:${ref}`
    git(directory, ["fetch", "--quiet", "--no-tags", directoryOf(forge, head), what])
  }
  takeObjects(forge, base, directory, [pull.head_sha])
  setReference(forge, base, ref, pull.head_sha)
  const range = `${pull.base_sha}...${pull.head_sha}`
  const counts = text(directory, ["diff", "--shortstat", range])
  const count = (word) => Number(new RegExp(`(\\d+) ${word}`).exec(counts)?.[1] ?? 0)
  const isClean = mergedTree(directory, pull) !== undefined
  gh.pullRequests.update(pull.id, {
    additions: count("insertion"), deletions: count("deletion"), changed_files: count("file"),
    commits: Number(text(directory, ["rev-list", "--count", pull.head_sha, `^${pull.base_sha}`])),
    mergeable: isClean, mergeable_state: isClean ? "clean" : "dirty",
  })
}
