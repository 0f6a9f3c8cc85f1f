# $1: the snapshot before a merge that did not end  $2: the snapshot that it began to write  $3: files to be named
# Restores the files in which they differ, and follows no link. Prints those that are not as before, each with a NUL.
require_snapshot "$1"
require_snapshot "$2"
git diff-tree -r --no-renames --name-only -z "$1" "$2" >/tmp/paths
[ -s /tmp/paths ] || exit 0
export GIT_LITERAL_PATHSPECS=1 GIT_OBJECT_DIRECTORY=/tmp/objects GIT_ALTERNATE_OBJECT_DIRECTORIES=$shadow/objects
mkdir $GIT_OBJECT_DIRECTORY
files() { xargs -0 -a /tmp/paths git ls-tree -rz "$1" --; }
files "$1" | GIT_INDEX_FILE=/tmp/index git update-index --replace -z --index-info || exit 1
tree=$(GIT_INDEX_FILE=/tmp/index git write-tree) || exit 1
files "$2" | GIT_INDEX_FILE=/tmp/index-now git update-index --replace -z --index-info || exit 1
GIT_INDEX_FILE=/tmp/index-now git read-tree --reset -u "$tree" 2>/tmp/errors
code=$?
cat /tmp/errors >&2
case $code in 0 | 128) ;; *) exit $code ;; esac
! grep -q ': No space left on device$' /tmp/errors || exit 18
git diff-tree -r --no-renames --diff-filter=A --name-only -z "$1" "$2" >/tmp/added
name_unlike /tmp/index "$2" /tmp/added "$3"
