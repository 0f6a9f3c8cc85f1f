# $1: the snapshot of the files  $2: the snapshot to write. Git refuses all of it if a file has changed since the first snapshot, or if one that no snapshot has
# is in the way.
require_snapshot "$1"
require_snapshot "$2"
# With its time: git reads a file again that is not older than the index.
cp -p $shadow/index /tmp/index || exit 1
export GIT_INDEX_FILE=/tmp/index
git update-index -q --refresh >/dev/null 2>&1
git read-tree -m -u "$1" "$2" 2>/tmp/errors || {
  code=$?
  cat /tmp/errors >&2
  # Git looks at all files before it writes the first one. Only the beginning of the first line is its own: the rest may be the name of a file.
  IFS= read -r first </tmp/errors
  case $first in "error: Entry '"* | "error: Untracked working tree file '"* | "error: Updating '"*) exit 23 ;; esac
  exit $code
}
git diff-tree -r --no-renames --diff-filter=D --name-only -z "$1" "$2" >/tmp/removed
present "$1" /tmp/removed >/tmp/left || exit 1
[ ! -s /tmp/left ] || {
  IFS= read -r -d '' first </tmp/left
  printf 'cannot remove %q\n' "$first" >&2
  exit 128
}
