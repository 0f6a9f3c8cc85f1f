// What emulate's JSON lacks, in answers and in webhooks alike: pull requests among issues, reactions, hunks of reviews, the
// App behind a comment or a check. It also has one URL for pages and API.

/** The first parts of the paths of the API. All others are pages. */
const API = ["repos", "users", "orgs", "teams", "app", "installation", "repositories", "organizations"]

/** The contents of reactions. */
export const REACTIONS = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]

/** How a user, an organization or the bot of an App looks in JSON. */
export function person({ url }, { id, node_id, login, type, site_admin = false }) {
  const [avatar_url, html_url] = [`${url}/avatars/u/${login}`, `${url}/${login}`]
  return { login, id, node_id, avatar_url, gravatar_id: "", url: `${url}/users/${login}`, html_url, type, site_admin }
}

/** Corrects a value in place, and returns it. */
export function correct(forge, value) {
  if (typeof value === "string") {
    const path = value.startsWith(`${forge.url}/`) ? value.slice(forge.url.length + 1) : ""
    return API.includes(path.split("/")[0]) ? `${forge.url}/api/v3/${path}` : value
  }
  if (value === null || typeof value !== "object") return value
  // Before the URLs change: they say which repository it is.
  complete(forge, value)
  for (const [key, inner] of Object.entries(value)) value[key] = correct(forge, inner)
  return value
}

function complete({ gh, url, extras, application, repository }, value) {
  const { id, slug, name } = application
  const app = { id, slug, name, owner: null, html_url: `${url}/apps/${slug}` }
  if (value.performed_via_github_app === null && value.user?.login === `${slug}[bot]`) value.performed_via_github_app = app
  if (value.app === null && value.head_sha) value.app = app
  if ("diff_hunk" in value) Object.assign(value, extras.get(value.id))
  if (value.reactions?.url) {
    const path = value.reactions.url.replace(/^https:\/\/[^/]+(\/api\/v3)?/, "")
    const rows = extras.get(path) ?? []
    const count = (content) => rows.filter((row) => row.content === content).length
    for (const content of REACTIONS) value.reactions[content] = count(content)
    value.reactions.total_count = rows.length
  }
  if (value.timeline_url && value.repository_url) {
    const repo = repository(value.repository_url.split("/").slice(-2).join("/"))
    const pull = gh.pullRequests.findBy("repo_id", repo?.id).find((row) => row.number === value.number)
    const page = `${url}/${repo?.full_name}/pull/${value.number}`
    const links = { url: `${url}/repos/${repo?.full_name}/pulls/${value.number}`, html_url: page }
    const more = { diff_url: `${page}.diff`, patch_url: `${page}.patch`, merged_at: pull?.merged_at ?? null }
    if (pull) Object.assign(value, { html_url: page, draft: pull.draft, pull_request: { ...links, ...more } })
  }
}
