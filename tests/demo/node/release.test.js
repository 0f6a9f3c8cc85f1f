import assert from "node:assert";
import test from "node:test";
import { fits, newest } from "./release.js";

test("the newest release is the highest version", () => {
  assert.equal(newest(["1.9.0", "1.10.0", "1.2.0"]), "1.10.0");
  assert.equal(newest([]), null);
});

test("a release fits a range", () => {
  assert.ok(fits("1.10.0", "^1.2.0"));
  assert.ok(!fits("2.0.0", "^1.2.0"));
});
