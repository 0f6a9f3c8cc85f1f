# $1, $2: snapshots  $3: bytes of statistics at most  $4: bytes of the patches at most
# Prints three lengths, what happened to each file, its lines, what the second snapshot left out, and the patches.
require_snapshot "$1"
require_snapshot "$2"
changes() { git -c core.bigFileThreshold=8m diff-tree -r --no-color --no-ext-diff --no-textconv --no-renames "$@" "$from" "$to"; }
from=$1 to=$2
changes --name-status -z | head -c "$3" >/tmp/status
changes --numstat -z | head -c "$3" >/tmp/lines
left=$shadow/left/$to
[ -e "$left" ] || left=/dev/null
# Unquoted: the lines become words.
echo $(stat -c %s /tmp/status /tmp/lines "$left")
cat /tmp/status /tmp/lines "$left"
changes --patch --full-index | head -c "$4"
