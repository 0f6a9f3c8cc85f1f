// Objects of git: as emulate keeps them in its tables, and as git stores them. Both have the same names.
import { git, succeeds, text } from "./program.mjs"

/** Copies the objects of these commits or trees into emulate, unless it has them. */
export function takeObjects({ gh }, repo, directory, tips) {
  if (!tips.length) return
  const tables = { blob: gh.blobs, tree: gh.trees, commit: gh.commits, tag: gh.tags }
  const had = new Set(Object.values(tables).flatMap((rows) => rows.findBy("repo_id", repo.id).map(({ sha }) => sha)))
  const listed = text(directory, ["rev-list", "--objects", "--no-object-names", ...tips]).split("\n")
  const objects = parseBatch(git(directory, ["cat-file", "--batch"], listed.filter((sha) => !had.has(sha)).join("\n")))
  const sizes = new Map(gh.blobs.findBy("repo_id", repo.id).map(({ sha, size }) => [sha, size]))
  objects.filter(({ type }) => type === "blob").forEach(({ sha, content }) => sizes.set(sha, content.length))
  const parse = { blob: parseBlob, tree: (content) => parseTree(content, sizes), commit: parseCommit, tag: parseTag }
  for (const { sha, type, content } of objects) {
    const node_id = Buffer.from(`${type}${sha}`).toString("base64")
    const user = type === "commit" ? { user_id: null } : {}
    tables[type].insert({ repo_id: repo.id, sha, node_id, ...user, ...parse[type](content) })
  }
}

function parseBatch(output) {
  const objects = []
  for (let at = 0; at < output.length; ) {
    const end = output.indexOf("\n", at)
    const [sha, type, size] = output.toString("utf8", at, end).split(" ")
    objects.push({ sha, type, content: output.subarray(end + 1, end + 1 + Number(size)) })
    at = end + 2 + Number(size)
  }
  return objects
}

function parseBlob(bytes) {
  const text = bytes.toString("utf8")
  const isText = !text.includes("\0") && Buffer.from(text, "utf8").equals(bytes)
  const [content, encoding] = isText ? [text, "utf-8"] : [bytes.toString("base64"), "base64"]
  return { content, encoding, size: bytes.length }
}

function parseTree(bytes, sizes) {
  const tree = []
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(0, at)
    const [short, ...rest] = bytes.toString("utf8", at, end).split(" ")
    const mode = short.padStart(6, "0")
    const sha = bytes.toString("hex", end + 1, end + 21)
    const type = { "040000": "tree", 160000: "commit" }[mode] ?? "blob"
    tree.push({ path: rest.join(" "), mode, type, sha, ...(type === "blob" ? { size: sizes.get(sha) } : {}) })
    at = end + 21
  }
  return { tree, truncated: false }
}

/** The headers of a commit or a tag, and its message without the last line ending, as GitHub shows it. */
function parseHeaders(bytes) {
  const [head, ...rest] = bytes.toString("utf8").split("\n\n")
  const fields = head.split("\n").filter((line) => !line.startsWith(" ")).map((line) => line.split(/ (.*)/s))
  const all = (wanted) => fields.filter(([name]) => name === wanted).map(([, value]) => value)
  return { all, message: rest.join("\n\n").replace(/\n$/, "") }
}

function parseIdentity(kind, value) {
  const [, name, email, seconds, sign, hours, minutes] = /^(.*?) ?<(.*?)> (\d+) ([+-])(\d\d)(\d\d)$/.exec(value)
  const offset = Number(`${sign}1`) * (Number(hours) * 60 + Number(minutes)) * 60
  const local = new Date((Number(seconds) + offset) * 1000).toISOString().slice(0, 19)
  const date = offset === 0 ? `${local}Z` : `${local}${sign}${hours}:${minutes}`
  return { [`${kind}_name`]: name, [`${kind}_email`]: email, [`${kind}_date`]: date }
}

function parseCommit(bytes) {
  const { all, message } = parseHeaders(bytes)
  const [author, committer] = ["author", "committer"].map((kind) => parseIdentity(kind, all(kind)[0]))
  return { message, tree_sha: all("tree")[0], parent_shas: all("parent"), ...author, ...committer }
}

function parseTag(bytes) {
  const { all, message } = parseHeaders(bytes)
  const tagger = parseIdentity("tagger", all("tagger")[0])
  return { tag: all("tag")[0], message, object_sha: all("object")[0], object_type: all("type")[0], ...tagger }
}

/** Writes a commit that the API made, with its trees and files, into the bare repository under the same name. */
export function giveCommit({ gh }, repo, directory, sha) {
  const find = (rows, sha) => rows.findBy("sha", sha).find((row) => row.repo_id === repo.id)
  const give = (type, sha, content) => {
    const written = text(directory, ["hash-object", "-w", "--stdin", "-t", type], content)
    if (written !== sha) throw new Error(`the ${type} ${sha} of the API is ${written} in git`)
  }
  const isThere = (sha) => succeeds(directory, ["cat-file", "-e", sha])
  const giveTree = (sha) => {
    if (isThere(sha)) return
    const { tree } = find(gh.trees, sha)
    for (const entry of tree) {
      if (entry.type === "tree") giveTree(entry.sha)
      if (entry.type !== "blob" || isThere(entry.sha)) continue
      const { content, encoding } = find(gh.blobs, entry.sha)
      give("blob", entry.sha, Buffer.from(content, encoding === "base64" ? "base64" : "utf8"))
    }
    const lines = tree.map(({ mode, type, sha, path }) => `${mode} ${type} ${sha}\t${path}\0`)
    if (text(directory, ["mktree", "-z"], lines.join("")) !== sha) throw new Error(`the tree ${sha} is another in git`)
  }
  const giveOne = (sha) => {
    if (isThere(sha)) return
    const row = find(gh.commits, sha)
    row.parent_shas.forEach(giveOne)
    giveTree(row.tree_sha)
    const identity = (kind) => {
      const [name, email, date] = ["name", "email", "date"].map((field) => row[`${kind}_${field}`])
      const zone = /[+-]\d\d:?\d\d$/.exec(date)?.[0].replace(":", "") ?? "+0000"
      return `${kind} ${name} <${email}> ${Math.floor(Date.parse(date) / 1000)} ${zone}`
    }
    const parents = row.parent_shas.map((parent) => `parent ${parent}`)
    const head = [`tree ${row.tree_sha}`, ...parents, identity("author"), identity("committer")]
    give("commit", sha, `${head.join("\n")}\n\n${row.message.replace(/\n?$/, "\n")}`)
  }
  giveOne(sha)
}
