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
  ! grep -qE 'not uptodate|would be (overwritten|removed|lost)' /tmp/errors || exit 23
  exit $code
}
