// The webhooks of the App: each is sent once, in the order of the events, and recorded. A failed one is sent again only on
// demand, with the same GUID.
import { createHmac, randomUUID } from "node:crypto"
import { correct, person } from "./payloads.mjs"

/** The id of the hook of the App. */
const HOOK = 4_000_001
/** Bytes of an answer that a record keeps. */
const ANSWER_BYTES_MAX = 4096

const deliveries = []
let queue = Promise.resolve()

/** Sends an event if an installation covers its repository. `repository` and `pull_request` may be a name and a number. */
export function offer(forge, event, payload) {
  queue = queue.then(async () => {
    const made = await complete(forge, payload)
    if (made && forge.application.events.includes(event)) await deliver(forge, record(forge, event, made))
  })
  // Nobody would see the error otherwise.
  queue = queue.catch((error) => console.error(error))
}

/** Sends a payload as it is. */
export function send(forge, event, payload) {
  queue = queue.then(() => deliver(forge, record(forge, event, payload)))
}

/** Returns the payload as GitHub sends it. `undefined`: no installation covers the repository. */
async function complete(forge, payload) {
  const { gh } = forge
  const { repository, pull_request } = payload
  const repo = forge.repository(repository?.full_name ?? repository)
  const installation = gh.appInstallations.all().find((row) => {
    const isOfAccount = row.account_id === repo?.owner_id && row.account_type === repo?.owner_type
    const isCovered = row.repository_selection === "all" || row.repository_ids.includes(repo?.id)
    return isOfAccount && isCovered && !row.suspended_at
  })
  if (!installation) return undefined
  const { installation_id: id, account_login } = installation
  const made = { ...payload, installation: { id, node_id: Buffer.from(`Installation${id}`).toString("base64") } }
  made.repository = await forge.get(`/repos/${repo.full_name}`)
  // A pull request in a payload of emulate's lacks what was counted since.
  const number = pull_request?.number ?? pull_request
  if (number) made.pull_request = await forge.get(`/repos/${repo.full_name}/pulls/${number}`)
  if (number && !made.comment && !made.review) made.number = number
  const organization = gh.orgs.findOneBy("login", account_login)
  if (organization) made.organization = person(forge, { ...organization, type: "Organization" })
  return correct(forge, made)
}

function record({ application, hook }, event, payload) {
  const body = JSON.stringify(payload)
  const signature = createHmac("sha256", application.webhookSecret).update(body).digest("hex")
  const guid = randomUUID()
  const headers = {
    "content-type": "application/json", "user-agent": "GitHub-Hookshot/f0r9e00", accept: "*/*",
    "x-github-delivery": guid, "x-github-event": event, "x-github-hook-id": `${HOOK}`,
    "x-github-hook-installation-target-id": `${application.id}`,
    "x-github-hook-installation-target-type": "integration", "x-hub-signature-256": `sha256=${signature}`,
  }
  return { guid, event, action: payload.action ?? null, payload, body, headers, redelivery: false, url: hook.url }
}

async function deliver(forge, made) {
  const started = Date.now()
  const delivered_at = new Date(started).toISOString()
  const delivery = { ...made, url: forge.hook.url, id: 10_000_000_001 + deliveries.length, delivered_at, status_code: 0 }
  try {
    const signal = AbortSignal.timeout(forge.hook.timeout)
    const options = { method: "POST", headers: made.headers, body: made.body, redirect: "manual", signal }
    const response = await fetch(delivery.url, options)
    const payload = (await response.text()).slice(0, ANSWER_BYTES_MAX)
    const status = response.ok ? "OK" : `Invalid HTTP Response: ${response.status}`
    const answer = { headers: Object.fromEntries(response.headers), payload }
    Object.assign(delivery, { status_code: response.status, status, response: answer })
  } catch (error) {
    const status = error.name === "TimeoutError" ? "timed out" : "failed to connect to host"
    Object.assign(delivery, { status, response: { headers: {}, payload: null } })
  }
  delivery.duration = (Date.now() - started) / 1000
  deliveries.push(delivery)
  const { id, guid, event, action, status_code, redelivery, payload } = delivery
  console.log(JSON.stringify({ id, guid, event, action, status_code, redelivery, payload }))
}

const summary = ({ payload, id, guid, delivered_at, redelivery, duration, status, status_code, event, action }) => ({
  id, guid, delivered_at, redelivery, duration, status, status_code, event, action,
  installation_id: payload.installation?.id ?? null, repository_id: payload.repository?.id ?? null, throttled_at: null,
})

export function routes(forge) {
  const { app } = forge
  const missing = () => Response.json({ message: "Not Found" }, { status: 404 })
  const find = (c) => deliveries.find(({ id }) => `${id}` === c.req.param("id"))
  app.get("/app/hook/deliveries", (c) => {
    const size = Math.min(100, Number(c.req.query("per_page") ?? 30))
    const before = Number((c.req.query("cursor") ?? "v1_Infinity").slice("v1_".length))
    const rest = deliveries.filter(({ id }) => id < before).reverse()
    const page = rest.slice(0, size)
    const next = `${forge.url}/app/hook/deliveries?per_page=${size}&cursor=v1_${page.at(-1)?.id}`
    if (rest.length > page.length) c.header("Link", `<${next}>; rel="next"`)
    return c.json(page.map(summary))
  })
  app.get("/app/hook/deliveries/:id", (c) => {
    const found = find(c)
    if (!found) return missing()
    const { headers, payload, response, url } = found
    return c.json({ ...summary(found), url, request: { headers, payload }, response })
  })
  app.post("/app/hook/deliveries/:id/attempts", (c) => {
    const found = find(c)
    if (!found) return missing()
    queue = queue.then(() => deliver(forge, { ...found, redelivery: true }))
    return c.json({}, 202)
  })
}
