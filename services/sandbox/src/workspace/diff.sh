# $4: bytes of the patch at most  $5: records of what the result lacks at most  $6: bytes of the statistics at most  $7: the form of the patch
# Prints the length of the statistics, of these records and the number of all of them; the statistics, the records, and the patch.
changes() { git diff-index --cached --no-color --no-ext-diff --no-textconv --no-renames --ignore-submodules=all "$@" "$base" --; }
changes --numstat -z >/run/sbx/scratch/stats || exit 1
[ "$(stat -c %s /run/sbx/scratch/stats)" -le "$6" ] || exit 21
cat /tmp/large /tmp/left >/tmp/lacking
head -z -n "$5" /tmp/lacking >/tmp/named
left=0
[ ! -s /tmp/lacking ] || left=$(tr -cd '\0' </tmp/lacking | wc -c)
# Unquoted: the lines become words.
echo $(stat -c %s /run/sbx/scratch/stats /tmp/named) "$left"
cat /run/sbx/scratch/stats /tmp/named
changes "$7" --full-index | head -c "$4"
