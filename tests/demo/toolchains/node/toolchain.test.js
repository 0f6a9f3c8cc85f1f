// What a build of Node does: a bundler (a program in Go that a package brings), threads, children, a server.
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const { createServer } = require("node:http");
const { test } = require("node:test");
const { Worker } = require("node:worker_threads");

test("a bundler", () => {
  const { code } = require("esbuild").transformSync("const half = (n: number): number => n / 2; console.log(half(84))", { loader: "ts" });
  assert.strictEqual(execFileSync(process.execPath, ["-e", code]).toString(), "42\n");
});

test("a thread", async () => {
  const worker = new Worker("require('node:worker_threads').parentPort.postMessage(6 * 7)", { eval: true });
  assert.strictEqual(await new Promise((done) => worker.once("message", done)), 42);
});

test("a server", async () => {
  const server = createServer((_, response) => response.end("served")).listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const page = await fetch(`http://127.0.0.1:${server.address().port}/`);
  assert.strictEqual(await page.text(), "served");
  server.close();
  server.closeAllConnections();
});
