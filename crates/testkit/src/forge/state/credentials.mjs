// Who asks, and what they may do. emulate takes an unknown token for its first user, and a private repository that
// somebody may not see for a forbidden one.

/** The order of the roles of people. */
const ROLES = ["pull", "triage", "push", "maintain", "admin"]
/** What a token of an installation reads where it has no permission. */
export const NO_ACCESS = "Resource not accessible by integration"
const SUSPENDED = { status: 403, message: "This installation has been suspended" }
const EXPIRY = "'Expiration time' claim ('exp')"
/** Seconds that a JSON web token of an App may live. */
const LIFETIME = 600

/** Returns the user of a token as emulate knows it, or what to answer instead. */
export async function authenticate(forge, path, headers) {
  const [scheme, value] = (headers.get("authorization") ?? "").split(" ")
  const isBasic = scheme.toLowerCase() === "basic"
  const token = isBasic ? Buffer.from(value, "base64").toString().split(":").at(-1) : value
  const isForApp = /^\/app(\/|\?|$)/.test(path) || /^\/(repos\/[^/]+|orgs|users)\/[^/]+\/installation$/.test(path)
  if (token?.startsWith("eyJ")) {
    const message = claimsFault(token) ?? (await signatureFault(forge, token))
    if (message) return { refusal: { status: 401, message } }
    const [, minting] = /^\/app\/installations\/(\d+)\/access_tokens$/.exec(path) ?? []
    if (isSuspended(forge, Number(minting))) return { refusal: SUSPENDED }
    return { isApp: true, authorization: `Bearer ${token}` }
  }
  if (isForApp) return { refusal: { status: 401, message: "A JSON web token could not be decoded" } }
  if (!token) return {}
  const [unknown, unready] = [{ status: 401, message: "Bad credentials" }, { status: 403, message: NO_ACCESS }]
  const status = forge.refusals.get(token)?.shift()
  if (status) return { refusal: status === unready.status ? unready : unknown }
  const user = forge.tokens.get(token)
  if (!user) return { refusal: unknown }
  const { installation } = user
  if (isSuspended(forge, installation?.installationId)) return { refusal: SUSPENDED }
  if (installation && path === "/user") return { refusal: unready }
  return { user, authorization: `token ${token}` }
}

const findInstallation = ({ gh }, id) => gh.appInstallations.all().find((row) => row.installation_id === id)

const isSuspended = (forge, id) => Boolean(findInstallation(forge, id)?.suspended_at)

function claimsFault(token) {
  const now = Date.now() / 1000
  let claims
  try {
    claims = JSON.parse(Buffer.from(token.split(".")[1], "base64url"))
  } catch {
    return "A JSON web token could not be decoded"
  }
  if (!(claims.exp > now))
    return `${EXPIRY} must be a numeric value representing the future time at which the assertion expires`
  if (claims.exp > now + LIFETIME) return `${EXPIRY} is too far in the future`
  // The seconds of both clocks are rounded.
  if (!(claims.iat <= now + 1))
    return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
}

async function signatureFault(forge, token) {
  const request = new Request(`${forge.url}/app`, { headers: { authorization: `Bearer ${token}` } })
  const { status } = await forge.app.fetch(request)
  if (status !== 200) return "A JSON web token could not be decoded"
}

/** The role of a person as emulate calls it. `undefined`: they do not see the repository. */
export function roleOf(forge, login, repo) {
  const { gh } = forge
  const user = forge.user(login)
  const isOwner = repo.owner_type === "User" && repo.owner_id === user?.id
  const teams = gh.teams.all().filter((team) => repo.owner_type === "Organization" && team.org_id === repo.owner_id)
  const members = teams.flatMap((team) => gh.teamMembers.findBy("team_id", team.id))
  const isMember = members.some((row) => row.user_id === user?.id)
  if (isOwner || isMember) return "admin"
  const row = gh.collaborators.findBy("repo_id", repo.id).find((row) => row.user_id === user?.id)
  return row?.permission ?? (repo.private ? undefined : "pull")
}

const covers = ({ accountId, accountType, repositorySelection, repositoryIds, installationId }, repo, forge) => {
  const row = findInstallation(forge, installationId)
  const isLost = row.repository_selection === "selected" && !row.repository_ids.includes(repo.id)
  const isOfAccount = repo.owner_id === accountId && repo.owner_type === accountType
  return isOfAccount && !isLost && (repositorySelection === "all" || repositoryIds.includes(repo.id))
}

/** Everybody reads a public repository, unless only those of an installation's own are meant. */
export function isReadable(forge, user, repo, { isOwn }) {
  if (!repo.private && !isOwn) return true
  if (!user) return false
  return user.installation ? covers(user.installation, repo, forge) : roleOf(forge, user.login, repo) !== undefined
}

/** Whether a token may write with one of these permissions. People need a role for contents, and comment on what they
 * see. */
export function isWritable(forge, user, repo, permissions) {
  if (!user || !isReadable(forge, user, repo, {})) return false
  const { installation } = user
  if (installation) {
    const isGranted = permissions.some((name) => installation.permissions[name] === "write")
    return isGranted && covers(installation, repo, forge)
  }
  const least = permissions.includes("contents") ? "push" : "pull"
  return ROLES.indexOf(roleOf(forge, user.login, repo)) >= ROLES.indexOf(least)
}
