import semver from "semver";

/** The newest of some releases; `null` if there is none. */
export function newest(releases) {
  return releases.toSorted().at(-1) ?? null;
}

/** Whether a release is compatible with a wanted range. */
export function fits(release, range) {
  return semver.satisfies(release, range);
}
