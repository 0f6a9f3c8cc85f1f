# $1: the snapshot to restore  $2: the snapshot of the current files  $3: files to be named
# The index lists the current files, so git writes only those that differ. Prints those that it could not write or remove, each with a NUL.
require_snapshot "$1"
cp $shadow/index /tmp/index || exit 1
GIT_INDEX_FILE=/tmp/index git read-tree --reset -u "$1" 2>/tmp/errors
code=$?
# A program may change files meanwhile, so git's own words decide whether to look.
was_clean $code && exit 0
git diff-tree -r --no-renames --name-only -z "$1" "$2" >/tmp/paths
[ -s /tmp/paths ] || exit $code
GIT_LITERAL_PATHSPECS=1 xargs -0 -a /tmp/paths git ls-tree -rz "$1" -- |
  GIT_INDEX_FILE=/tmp/wanted git update-index --replace -z --index-info || exit 1
git diff-tree -r --no-renames --diff-filter=A --name-only -z "$1" "$2" >/tmp/added
name_unlike /tmp/wanted "$2" /tmp/added "$3"
exit $code
