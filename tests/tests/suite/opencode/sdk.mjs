// Drives a server with OpenCode's SDK and fails where an answer is not what its users expect.
// Usage: node sdk.mjs v1|v2 DIRECTORY-OF-THE-SDK URL KEY
import assert from "node:assert/strict"

const [generation, sdk, baseUrl, key] = process.argv.slice(2)
const isFirst = generation === "v1"
const { createOpencodeClient } = await import(`${sdk}/dist/${isFirst ? "index" : "v2/index"}.js`)
const directory = "/home/me/project with a blank"
const client = createOpencodeClient({
  baseUrl,
  directory,
  throwOnError: true,
  headers: { authorization: `Basic ${Buffer.from(`anybody:${key}`).toString("base64")}` },
})

// The first generation names the parts of a request, the second takes one flat object.
const call = async (name, id, body) => {
  const names = id === undefined ? {} : { [isFirst ? "id" : "sessionID"]: id }
  const given = isFirst ? { path: names, body } : { ...names, ...body }
  return (await client.session[name](given)).data
}
const text = (text) => ({ parts: [{ type: "text", text }] })

// All events, and the functions that wait for one of them.
const told = []
const waiting = new Set()
const { stream } = await client.event.subscribe()
const reader = (async () => {
  for await (const event of stream) {
    told.push(event)
    for (const look of waiting) look()
  }
})()
const until = (wanted) =>
  new Promise((done) => {
    const look = () => {
      const found = told.find(wanted)
      if (found) waiting.delete(look), done(found)
    }
    waiting.add(look)
    look()
  })
// The events before now are over.
const forget = () => told.splice(0)
const idle = (id) => until((event) => event.type === "session.idle" && event.properties.sessionID === id)

const session = await call("create", undefined, { title: "By the SDK" })
assert.equal(session.title, "By the SDK")
assert.equal(session.directory, directory)

const answer = await call("prompt", session.id, text("@text Hello."))
assert.equal(answer.info.role, "assistant")
assert.equal(answer.parts.find((part) => part.type === "text").text, "Hello.")
const messages = await call("messages", session.id)
assert.deepEqual(messages.map((said) => said.info.role), ["user", "assistant"])
assert.deepEqual(messages[1].parts, answer.parts)
await idle(session.id)
assert.ok(told.some((event) => event.type === "message.part.updated" && event.properties.part.text === "Hello."))

forget()
const asking = call("prompt", session.id, text('@tool bash {"command":"echo ran"}\n@text Over.'))
const asked = await until((event) => event.type === "permission.asked")
if (isFirst) {
  const path = { id: session.id, permissionID: asked.properties.id }
  await client.postSessionIdPermissionsPermissionId({ path, body: { response: "once" } })
} else {
  await client.permission.reply({ requestID: asked.properties.id, reply: "once" })
}
await asking
const calls = (await call("messages", session.id)).flatMap((said) => said.parts)
assert.equal(calls.find((part) => part.type === "tool").state.output, "ran\n")

forget()
const slow = call("prompt", session.id, text(`@delay 50\n@chunk 1\n@text ${"on and on ".repeat(100)}`))
await until((event) => event.type === "message.part.updated" && event.properties.part.text === "")
assert.equal(await call("abort", session.id), true)
assert.equal((await slow).info.error.name, "MessageAbortedError")

const second = (await call("messages", session.id))[2].info.id
const fork = await call("fork", session.id, { messageID: second })
assert.equal((await call("messages", fork.id)).length, 2)
const reverted = await call("revert", session.id, { messageID: second })
assert.equal(reverted.revert.messageID, second)
assert.equal((await call("unrevert", session.id)).revert, undefined)
await assert.rejects(call("get", "ses_00000000000000000000000000"), /no session with this id/)
console.log("everything is as it should be")
process.exit(0)
