# $4: bytes of the patch at most  $5: files to be named that are too large  $6: bytes of the statistics at most  $7: the form of the patch
# Prints the length of the statistics, of the names and the number of files that are too large; the statistics, these names with their sizes,
# and the patch.
changes() { git diff-index --cached --no-color --no-ext-diff --no-textconv --no-renames --ignore-submodules=all "$@" "$base" --; }
changes --numstat -z >/run/sbx/scratch/stats || exit 1
[ "$(stat -c %s /run/sbx/scratch/stats)" -le "$6" ] || exit 21
head -z -n "$5" /tmp/large >/tmp/named
left=0
[ ! -s /tmp/large ] || left=$(tr -cd '\0' </tmp/large | wc -c)
# Unquoted: the lines become words.
echo $(stat -c %s /run/sbx/scratch/stats /tmp/named) "$left"
cat /run/sbx/scratch/stats /tmp/named
changes "$7" --full-index | head -c "$4"
