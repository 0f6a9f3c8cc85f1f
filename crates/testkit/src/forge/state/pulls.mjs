// What emulate gets wrong about pull requests: it opens them without a branch and twice, lists none of their files, merges
// without looking, does not take them for issues, and knows no lines of reviews.
import { NO_ACCESS, isWritable } from "./credentials.mjs"
import { directoryOf, mergedTree } from "./git.mjs"
import { takeObjects } from "./objects.mjs"
import { text } from "./program.mjs"
import { offer } from "./webhooks.mjs"

const find = ({ gh }, repo, number) =>
  gh.pullRequests.findBy("repo_id", repo?.id).find((row) => row.number === Number(number))

/** Returns the page of a list that a request asks for, and links the next one. */
export function page(c, list) {
  const [page, size] = [Number(c.req.query("page") ?? 1), Math.min(100, Number(c.req.query("per_page") ?? 30))]
  const next = new URL(c.req.url)
  next.searchParams.set("page", page + 1)
  if (page * size < list.length) c.header("Link", `<${next}>; rel="next"`)
  return list.slice((page - 1) * size, page * size)
}

export function routes(forge) {
  const { app } = forge
  for (const list of ["files", "commits"]) {
    app.get(`/repos/:owner/:repo/pulls/:number/${list}`, async (c) => {
      const { owner, repo, number } = c.req.param()
      const path = `/repos/${owner}/${repo}`
      const headers = { authorization: c.req.header("authorization") ?? "" }
      const pull = await app.fetch(new Request(`${forge.url}${path}/pulls/${number}`, { headers }))
      if (!pull.ok) return pull
      const { base, head } = await pull.json()
      const compared = await forge.get(`${path}/compare/${base.sha}...${head.sha}`)
      return c.json(page(c, compared[list]))
    })
  }
}

/** Changes a request before emulate gets it. Returns an answer instead of emulate's, or what comes after: `undo` in any
 * case, and `after`, which replaces the answer. */
export async function before(forge, request, fail) {
  const { method, path, repo } = request
  const [, rest] = /^\/repos\/[^/]+\/[^/]+(\/[^?]*)?/.exec(path) ?? []
  if (!repo || !rest) return undefined
  const step = STEPS.find(([verbs, pattern]) => verbs.split(" ").includes(method) && pattern.test(rest))
  return step?.[2](forge, request, fail, ...step[1].exec(rest).slice(1))
}

const STEPS = [
  ["POST", /^\/pulls$/, openPull],
  ["PUT", /^\/pulls\/(\d+)\/merge$/, merge],
  ["POST", /^\/pulls\/(\d+)\/reviews$/, review],
  ["POST", /^\/pulls\/(\d+)\/comments$/, comment],
  ["POST", /^\/pulls\/(\d+)\/comments\/(\d+)\/replies$/, reply],
  ["GET", /^\/issues(?:\/(\d+))?$/, readIssues],
  ["PATCH", /^\/issues\/(\d+)$/, changeIssue],
  ["POST", /^\/check-runs$/, checkRun],
]

const json = (request) => {
  try {
    return JSON.parse(request.body)
  } catch {
    return {}
  }
}

const invalid = (fail, error) => fail(422, "Validation Failed", { errors: [{ code: "invalid", ...error }] })

function openPull(forge, request, fail) {
  const { gh } = forge
  const { repo } = request
  const { head = "", base = "" } = json(request)
  const [owner, branch] = head.includes(":") ? head.split(":") : [repo.full_name.split("/")[0], head]
  const forks = gh.repos.all().filter((row) => row.forked_from_id === repo.id || row.id === repo.id)
  const from = forks.find((row) => row.full_name.split("/")[0] === owner)
  const tip = (repo, name) => gh.branches.findBy("repo_id", repo?.id).find((row) => row.name === name)?.sha
  const error = (field) => invalid(fail, { resource: "PullRequest", field })
  const custom = (message) => invalid(fail, { resource: "PullRequest", code: "custom", message })
  if (!tip(from, branch)) return error("head")
  if (!tip(repo, base)) return error("base")
  const open = gh.pullRequests.findBy("repo_id", repo.id).filter((row) => row.state === "open" && row.base_ref === base)
  if (open.some((row) => row.head_repo_id === from.id && row.head_ref === branch))
    return custom(`A pull request already exists for ${owner}:${branch}.`)
  if (tip(from, branch) === tip(repo, base)) return custom(`No commits between ${base} and ${head}`)
  // emulate takes the first fork of an owner, and the words before a colon for a fork.
  request.body = JSON.stringify({ ...json(request), head: from.id === repo.id ? branch : head })
  const after = async (response) => {
    const { number } = await response.json()
    return Response.json(await forge.get(`/repos/${repo.full_name}/pulls/${number}`), { status: 201 })
  }
  return { after }
}

async function merge(forge, request, fail, number) {
  const { gh } = forge
  const { repo, user } = request
  const pull = find(forge, repo, number)
  if (!pull) return undefined
  if (!isWritable(forge, user, repo, ["contents"])) return fail(403, NO_ACCESS)
  const directory = directoryOf(forge, repo)
  const tree = mergedTree(directory, pull)
  if (pull.state !== "open" || pull.draft || !tree) return fail(405, "Pull Request is not mergeable")
  const { sha } = json(request)
  if (sha && sha !== pull.head_sha) return fail(409, "Head branch was modified. Review and try the merge again.")
  takeObjects(forge, repo, directory, [tree])
  // emulate gives the merged commit the tree of the head, which lacks what the base has meanwhile.
  const head = gh.commits.findBy("sha", pull.head_sha).find((row) => row.repo_id === repo.id)
  const own = head.tree_sha
  head.tree_sha = tree
  if (!request.body.length) request.body = "{}"
  return { undo: () => (head.tree_sha = own) }
}

/** The hunk of a pull request that shows a line of a file, up to that line, and the line's position in the diff. */
function findHunk(forge, repo, pull, { path, line, side = "RIGHT" }) {
  const range = `${pull.base_sha}...${pull.head_sha}`
  const args = ["diff", "--no-color", "--no-renames", range, "--", path ?? ""]
  const diff = text(directoryOf(forge, repo), args).split("\n")
  const first = diff.findIndex((row) => row.startsWith("@@"))
  let [start, left, right] = [first, 0, 0]
  for (let at = first; first >= 0 && at < diff.length; at += 1) {
    const bounds = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(diff[at])
    if (bounds) {
      start = at
      ;[left, right] = [Number(bounds[1]), Number(bounds[2])]
      continue
    }
    const kind = diff[at][0]
    const isHere = side === "LEFT" ? kind !== "+" && left === line : kind !== "-" && right === line
    if (isHere) return { diff_hunk: diff.slice(start, at + 1).join("\n"), position: at - first }
    if (kind !== "+") left += 1
    if (kind !== "-") right += 1
  }
  return undefined
}

const placed = (forge, repo, pull, comment) => {
  const { line = null, side = "RIGHT", start_line = null, start_side = null } = comment
  const hunk = comment.line === undefined ? {} : findHunk(forge, repo, pull, comment)
  return hunk && { ...hunk, line, original_line: line, side, start_line, original_start_line: start_line, start_side }
}

function noLine(fail) {
  const [resource, field] = ["PullRequestReviewComment", "pull_request_review_thread.line"]
  return invalid(fail, { resource, field, message: "must be part of the diff" })
}

function comment(forge, request, fail, number) {
  const { repo } = request
  const pull = find(forge, repo, number)
  const { in_reply_to, ...body } = json(request)
  if (!pull || in_reply_to) return reply(forge, request, fail, number, in_reply_to)
  if (body.commit_id && body.commit_id !== pull.head_sha && !forge.gh.commits.findOneBy("sha", body.commit_id))
    return invalid(fail, { resource: "PullRequestReviewComment", field: "commit_id" })
  const extra = placed(forge, repo, pull, body)
  if (!extra) return noLine(fail)
  request.body = JSON.stringify({ position: extra.position, ...body })
  // emulate announces the comment before its answer: the next id is that of the comment.
  forge.extras.set(forge.gh.comments.autoId, extra)
  return undefined
}

/** Answers a comment of a review, at the same line. */
function reply(forge, request, fail, number, to) {
  const parent = forge.gh.comments.get(Number(to))
  if (!parent) return to ? fail(404, "Not Found") : undefined
  const { path, line, side, position } = parent
  const body = { path, line, side, position, in_reply_to_id: parent.id, body: json(request).body }
  request.path = request.path.replace(/\/\d+\/replies/, "")
  request.body = JSON.stringify(body)
  forge.extras.set(forge.gh.comments.autoId, forge.extras.get(parent.id))
  return undefined
}

/** A review whose comments name lines. emulate knows only positions, and announces none of the comments. */
function review(forge, request, fail, number) {
  const { gh } = forge
  const { repo } = request
  const pull = find(forge, repo, number)
  const body = json(request)
  const comments = body.comments ?? []
  if (!pull) return undefined
  const extras = comments.map((comment) => placed(forge, repo, pull, comment))
  if (extras.some((extra) => !extra)) return noLine(fail)
  const positioned = comments.map((comment, at) => ({ position: extras[at].position, ...comment }))
  request.body = JSON.stringify({ ...body, comments: positioned })
  const after = async (response) => {
    const { id } = await response.clone().json()
    const rows = gh.comments.findBy("repo_id", repo.id).filter((row) => row.review_id === id)
    for (const [at, row] of rows.entries()) {
      forge.extras.set(row.id, extras[at])
      gh.comments.update(row.id, { line: extras[at].line, side: extras[at].side })
      const comment = await forge.get(`/repos/${repo.full_name}/pulls/comments/${row.id}`)
      const common = { pull_request: pull.number, repository: repo.full_name, sender: comment.user }
      if (body.event) offer(forge, "pull_request_review_comment", { action: "created", comment, ...common })
    }
    return response
  }
  return { after }
}

/** On GitHub, a pull request is an issue as well. */
function readIssues({ gh }, { repo }, _fail, number) {
  const rows = gh.issues.findBy("repo_id", repo.id).filter((row) => row.is_pull_request)
  const shown = rows.filter((row) => !number || row.number === Number(number))
  shown.forEach((row) => (row.is_pull_request = false))
  return { undo: () => shown.forEach((row) => (row.is_pull_request = true)) }
}

function changeIssue(forge, request, fail, number) {
  const { repo, path } = request
  if (!find(forge, repo, number)) return undefined
  const { title, body, state } = json(request)
  request.path = path.replace("/issues/", "/pulls/")
  request.body = JSON.stringify({ title, body, state })
  const after = async () => {
    const { undo } = readIssues(forge, request, fail, number)
    const issue = forge.get(`/repos/${repo.full_name}/issues/${number}`)
    return Response.json(await issue.finally(undo))
  }
  return { after }
}

function checkRun({ application }, request, fail) {
  if (request.user && !request.user.installation) return fail(403, "You must authenticate via a GitHub App.")
  request.body = JSON.stringify({ ...json(request), app_id: application.id })
  return undefined
}
