// The state of the double of GitHub: emulate's GitHub service, with the corrections that need its state. The double itself
// stands in front of it.
// Usage: node main.mjs SETTINGS-AS-JSON. Prints its port, then one line of JSON for each delivery of a webhook. Ends with
// its standard input, so that nothing of it outlives a test.
import { createServer } from "node:http"
import { NO_ACCESS, authenticate, isReadable, isWritable, roleOf } from "./credentials.mjs"
import * as git from "./git.mjs"
import { correct, person } from "./payloads.mjs"
import * as pulls from "./pulls.mjs"
import * as reactions from "./reactions.mjs"
import * as webhooks from "./webhooks.mjs"

/** Headers that belong to one connection. */
const OF_CONNECTION = ["host", "connection", "content-length", "transfer-encoding"]

const settings = JSON.parse(process.argv[2])
const { createEmulator } = await import(`${settings.modules}/emulate/dist/api.js`)
// The file of emulate's GitHub service. Its name has a hash, so it belongs to the version in the list of packages.
const { githubPlugin, getGitHubStore, seedFromConfig } = await import(`${settings.modules}/emulate/dist/dist-DWLNEG6M.js`)

/** What the modules share. `url` is that of the double; emulate thinks that it is its own. */
const forge = {
  ...settings,
  extras: new Map(),
  hook: { url: null, timeout: 10_000 },
  newTokenRefusals: [],
  refusals: new Map(),
  /** Reads from the API as somebody who may. The administrator belongs to each organization. */
  async get(path) {
    const owner = /^\/repos\/([^/]+)/.exec(path)?.[1]
    const headers = { authorization: `token ${forge.tokenOf(owner) ?? settings.admin}` }
    const response = await forge.app.fetch(new Request(settings.url + path, { headers }))
    const text = await response.text()
    if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`)
    return correct(forge, JSON.parse(text))
  },
  tokenOf: (login) => [...forge.tokens].find(([, user]) => user.login === login && !user.installation)?.[0],
  repository: (name) => forge.gh.repos.findOneBy("full_name", name),
  user: (login) => forge.gh.users.findOneBy("login", login),
}

const register = githubPlugin.register
githubPlugin.register = (app, store, dispatcher, url, tokens) => {
  Object.assign(forge, { app, store, tokens, gh: getGitHubStore(store) })
  // Ids of different kinds differ, and those of comments are larger than 32 bits.
  Object.values(forge.gh).forEach((rows, at) => (rows.autoId = (at + 1) * 1_000_000 + 1))
  forge.gh.comments.autoId = 5_000_000_001
  dispatcher.dispatch = async (event, action, payload) => {
    const pull = event === "pull_request" && forge.gh.pullRequests.get(payload.pull_request.id)
    if (pull?.state === "open") git.measure(forge, pull)
    // These are announced where the branches of git move.
    if (!["push", "create", "delete"].includes(event)) webhooks.offer(forge, event, payload)
  }
  for (const routes of [ownRoutes, pulls.routes, reactions.routes, webhooks.routes]) routes(forge)
  register.call(githubPlugin, app, store, dispatcher, url, tokens)
}

const fail = (status, message, more) =>
  Response.json({ message, ...more, documentation_url: "https://docs.github.com/rest", status: `${status}` }, { status })

function ownRoutes({ app }) {
  app.get("/installation/repositories", async (c) => {
    const user = c.get("authUser")
    if (!user?.installation) return fail(403, NO_ACCESS)
    const rows = forge.gh.repos.all().filter((repo) => isReadable(forge, user, repo, { isOwn: true }))
    const repositories = await Promise.all(rows.map((row) => forge.get(`/repos/${row.full_name}`)))
    const page = pulls.page(c, repositories)
    const { repositorySelection: repository_selection } = user.installation
    return c.json({ total_count: rows.length, repository_selection, repositories: page })
  })
  app.get("/repos/:owner/:repo/collaborators/:login/permission", (c) => {
    const user = forge.user(c.req.param("login"))
    if (!user) return fail(404, "Not Found")
    const role = roleOf(forge, user.login, forge.repository(`${c.req.param("owner")}/${c.req.param("repo")}`))
    const [permission, role_name] = {
      admin: ["admin", "admin"],
      maintain: ["write", "maintain"],
      push: ["write", "write"],
      triage: ["read", "triage"],
      pull: ["read", "read"],
    }[role] ?? ["none", "none"]
    return c.json({ permission, role_name, user: person(forge, user) })
  })
}

/** What the double in front asks for. Nobody else reaches these doors. */
const doors = {
  people: ({ login, token }) => {
    seedFromConfig(forge.store, forge.url, { users: [{ login, email: `${login}@example.com` }] })
    forge.tokens.set(token, { login, id: forge.user(login).id, scopes: ["repo", "user"] })
  },
  organizations: ({ login, installation }) => {
    const org = { login, members: [{ login: "admin", role: "admin" }] }
    seedFromConfig(forge.store, forge.url, { orgs: [org] })
    const { id, node_id } = forge.gh.orgs.findOneBy("login", login)
    forge.gh.appInstallations.insert({
      installation_id: installation, app_id: forge.application.id, account_type: "Organization", account_id: id,
      account_login: login, repository_selection: "all", repository_ids: [], suspended_at: null, node_id,
      permissions: { ...forge.application.permissions }, events: forge.application.events,
    })
  },
  repositories: async ({ name, isPrivate }) => {
    const [owner, short] = name.split("/")
    const body = JSON.stringify({ name: short, private: isPrivate, auto_init: false })
    const path = forge.user(owner) ? "/user/repos" : `/orgs/${owner}/repos`
    const headers = { authorization: `token ${forge.tokenOf(owner) ?? forge.admin}` }
    const made = await forge.app.fetch(new Request(forge.url + path, { method: "POST", headers, body }))
    if (!made.ok) throw new Error(await made.text())
    git.read(forge, forge.repository(name))
  },
  collaborators: ({ repository, login, permission }) => {
    const { id: repo_id } = forge.repository(repository)
    const { id: user_id } = forge.user(login)
    const rows = forge.gh.collaborators
    rows.findBy("repo_id", repo_id).filter((row) => row.user_id === user_id).forEach((row) => rows.delete(row.id))
    if (permission) rows.insert({ repo_id, user_id, permission })
  },
  // Permissions and repositories of an installation, which its tokens lose at once.
  installations: ({ account, ...changes }) => {
    const row = forge.gh.appInstallations.all().find((row) => row.account_login === account)
    const { permissions = row.permissions, repositories, isSuspended = row.suspended_at !== null } = changes
    const ids = repositories?.map((name) => forge.repository(name).id) ?? row.repository_ids
    const repository_selection = repositories ? "selected" : row.repository_selection
    const suspended_at = isSuspended ? new Date().toISOString() : null
    forge.gh.appInstallations.update(row.id, { permissions, repository_ids: ids, repository_selection, suspended_at })
    for (const { installation } of forge.tokens.values()) {
      if (installation?.installationId !== row.installation_id) continue
      const kept = Object.entries(installation.permissions).filter(([name]) => permissions[name])
      const lesser = (name, had) => (permissions[name] === "read" ? "read" : had)
      installation.permissions = Object.fromEntries(kept.map(([name, had]) => [name, lesser(name, had)]))
    }
  },
  settings: ({ hookUrl, deliveryTimeout, newTokenRefusals }) => {
    forge.hook.url = hookUrl ?? forge.hook.url
    forge.hook.timeout = deliveryTimeout ?? forge.hook.timeout
    forge.newTokenRefusals = newTokenRefusals ?? forge.newTokenRefusals
  },
  expiry: () => {
    for (const [token, user] of forge.tokens) if (user.installation) forge.tokens.delete(token)
  },
  events: ({ event, payload }) => webhooks.send(forge, event, payload),
  access: ({ repository }, user) => {
    const row = forge.repository(repository)
    return {
      isReadable: Boolean(row && isReadable(forge, user, row, {})),
      isWritable: Boolean(row && isWritable(forge, user, row, ["contents"])),
      login: user?.installation ? `${forge.application.slug}[bot]` : user?.login,
    }
  },
  pushes: ({ repository }, user) => git.read(forge, forge.repository(repository), person(forge, forge.actor(user))),
}

/** The row of who acts with a token: the bot of the App for one of an installation. */
forge.actor = (user) => forge.user(user.installation ? `${forge.application.slug}[bot]` : user.login)

async function answer({ method, path, headers, body }) {
  const { refusal, user, authorization, isApp } = await authenticate(forge, path, headers)
  if (refusal) return fail(refusal.status, refusal.message)
  if (authorization) headers.set("authorization", authorization)
  const door = /^\/_forge\/(\w+)$/.exec(path)?.[1]
  if (door) return Response.json((await doors[door](JSON.parse(body), user)) ?? {})
  const repo = forge.repository(/^\/repos\/([^/]+\/[^/?]+)/.exec(path)?.[1])
  if (repo && !isApp && !isReadable(forge, user, repo, {})) return fail(404, "Not Found")
  const request = { method, path, headers, body, repo, user }
  const early = await pulls.before(forge, request, fail)
  if (early instanceof Response) return early
  const isRead = ["GET", "HEAD"].includes(method)
  const made = new Request(forge.url + request.path, { method, headers, body: isRead ? undefined : request.body })
  let response
  try {
    response = await forge.app.fetch(made)
  } finally {
    early?.undo?.()
  }
  const refused = response.status === 403 && (await response.clone().text()).includes('"Forbidden"')
  if (refused) {
    const message = user?.installation ? NO_ACCESS : "Must have admin rights to Repository."
    return fail(403, message)
  }
  if (!isRead && response.ok && user) {
    if (/\/forks(\?|$)/.test(path)) await git.fork(forge, repo, response)
    else if (repo && forge.repository(repo.full_name)) git.write(forge, repo, person(forge, forge.actor(user)))
  }
  return response.ok && early?.after ? early.after(response) : response
}

async function handle(incoming, outgoing) {
  const chunks = await incoming.toArray()
  const headers = new Headers(Object.entries(incoming.headers).filter(([name]) => !OF_CONNECTION.includes(name)))
  const path = incoming.url.replace(/^\/api\/v3(?=\/)/, "")
  let response
  try {
    response = await answer({ method: incoming.method, path, headers, body: Buffer.concat(chunks) })
  } catch (error) {
    response = fail(500, error.stack)
  }
  const isJson = response.headers.get("content-type")?.includes("json")
  let content = Buffer.from(await response.arrayBuffer())
  if (isJson && content.length) {
    const value = JSON.parse(content)
    // A new token of an installation may need some seconds, as on GitHub.
    if (path.endsWith("/access_tokens") && value.token) forge.refusals.set(value.token, [...forge.newTokenRefusals])
    content = Buffer.from(JSON.stringify(correct(forge, value)))
  }
  const link = response.headers.get("link")
  if (link) response.headers.set("link", link.replaceAll(`<${forge.url}/`, `<${forge.url}/api/v3/`))
  outgoing.writeHead(response.status, [...response.headers].filter(([name]) => name !== "content-length").flat())
  outgoing.end(content)
}

process.stdin.resume().on("end", () => process.exit())
const { id, slug, name, key, permissions } = forge.application
const application = { app_id: id, slug, name, private_key: key, permissions, events: ["*"] }
await createEmulator({
  service: "github", port: 0, baseUrl: forge.url,
  seed: {
    tokens: { [forge.admin]: { login: "admin" } },
    github: { users: [{ login: "nobody" }], apps: [application] },
  },
})
forge.gh.users.insert({
  login: `${slug}[bot]`, type: "Bot", site_admin: false, name, email: `${id}+${slug}[bot]@users.noreply.github.com`,
  node_id: "", avatar_url: "", gravatar_id: "", public_repos: 0, public_gists: 0, followers: 0, following: 0,
})
const server = createServer(handle)
// The double keeps its connections; one that ends at the wrong moment would lose a request.
server.keepAliveTimeout = 0
server.listen(0, "127.0.0.1", () => console.log(server.address().port))
