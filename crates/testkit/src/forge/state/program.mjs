// The program git, without the settings of this machine.
import { execFileSync } from "node:child_process"

const environment = { PATH: process.env.PATH, GIT_CONFIG_NOSYSTEM: "1", GIT_CONFIG_GLOBAL: "/dev/null", LC_ALL: "C" }

/** Runs git in a directory and returns its output; fails with it. */
export function git(directory, args, input = "") {
  const settings = ["-C", directory, "-c", "maintenance.auto=false", "-c", "core.quotePath=false"]
  const options = { input, env: environment, maxBuffer: 1 << 30, stdio: "pipe" }
  return execFileSync("git", [...settings, ...args], options)
}

export const text = (directory, args, input) => git(directory, args, input).toString().trim()

/** Runs git, and returns whether it ended well. */
export function succeeds(directory, args) {
  try {
    git(directory, args)
    return true
  } catch (error) {
    if (error.status === null) throw error
    return false
  }
}
