// Reactions to issues, comments and comments of reviews, which emulate does not have.
import { NO_ACCESS, isWritable } from "./credentials.mjs"
import { person, REACTIONS } from "./payloads.mjs"

const fail = (status, message) => Response.json({ message }, { status })
let last = 7_000_000

export function routes(forge) {
  const { app, extras } = forge
  for (const kind of ["issues", "issues/comments", "pulls/comments"]) {
    const path = `/repos/:owner/:repo/${kind}/:id/reactions`
    const open = (c) => {
      const repo = forge.repository(`${c.req.param("owner")}/${c.req.param("repo")}`)
      const id = Number(c.req.param("id"))
      const isComment = kind !== "issues"
      const rows = isComment ? [forge.gh.comments.get(id)] : forge.gh.issues.findBy("repo_id", repo?.id)
      const isThere = rows.some((row) => row?.repo_id === repo?.id && (isComment || row.number === id))
      // The key is the path, by which the counts find them.
      const key = `/repos/${repo?.full_name}/${kind}/${id}/reactions`
      if (isThere && !extras.has(key)) extras.set(key, [])
      return { repo, key, rows: isThere ? extras.get(key) : undefined }
    }
    const permissions = kind.startsWith("pulls") ? ["pull_requests"] : ["issues", "pull_requests"]
    const refusal = (c, repo) => {
      const user = c.get("authUser")
      if (!user) return fail(401, "Requires authentication")
      if (!isWritable(forge, user, repo, permissions)) return fail(403, NO_ACCESS)
    }
    app.get(path, (c) => {
      const { rows } = open(c)
      const content = c.req.query("content")
      return rows ? c.json(rows.filter((row) => !content || row.content === content)) : fail(404, "Not Found")
    })
    app.post(path, async (c) => {
      const { repo, rows } = open(c)
      if (!rows) return fail(404, "Not Found")
      const refused = refusal(c, repo)
      if (refused) return refused
      const { content } = await c.req.json()
      if (!REACTIONS.includes(content)) return fail(422, "Validation Failed")
      const user = person(forge, forge.actor(c.get("authUser")))
      const old = rows.find((row) => row.user.login === user.login && row.content === content)
      if (old) return c.json(old, 200)
      last += 1
      const node_id = Buffer.from(`Reaction${last}`).toString("base64")
      const row = { id: last, node_id, user, content, created_at: new Date().toISOString() }
      rows.push(row)
      return c.json(row, 201)
    })
    app.delete(`${path}/:reaction`, (c) => {
      const { repo, key, rows } = open(c)
      const isThere = rows?.some((row) => `${row.id}` === c.req.param("reaction"))
      if (!isThere) return fail(404, "Not Found")
      const refused = refusal(c, repo)
      if (refused) return refused
      extras.set(key, rows.filter((row) => `${row.id}` !== c.req.param("reaction")))
      return c.body(null, 204)
    })
  }
}
