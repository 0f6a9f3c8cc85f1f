# $2: bytes of the patch at most. Prints the length of the statistics, the statistics and the patch.
changes() { git diff-index --cached --no-color --no-ext-diff --no-textconv --no-renames --ignore-submodules=all "$@" "$base" --; }
changes --numstat -z >/run/sbx/scratch/stats || exit 1
wc -c </run/sbx/scratch/stats
cat /run/sbx/scratch/stats
changes --patch --full-index | head -c "$2"
