# $1: snapshot. The index lists the current files, so git writes only those that differ.
require_snapshot "$1"
cp $shadow/index /tmp/index || exit 1
GIT_INDEX_FILE=/tmp/index git read-tree --reset -u "$1"
