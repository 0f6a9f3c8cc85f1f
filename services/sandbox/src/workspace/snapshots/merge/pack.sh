# $1: the commit that the copy began with  $2: the snapshot of its files now  $3: that of its last merge, or nothing  $4: KiB that the objects may take
# Writes the objects that the commit does not have, and the list of the files that are too large, to the scratch directory. Prints the tree since which the
# copy has changed: that of its last merge, or of the commit.
commit=$1 snapshot=$2 since=$3 limit=$4 shadow=/run/sbx/snapshots/git
used() { du -sk /run/sbx/scratch 2>/dev/null | cut -f1; }
[ -e "$shadow/refs/snapshots/$snapshot" ] || exit 17
bound
format=sha1
[ ${#snapshot} = 40 ] || format=sha256
export GIT_DIR=/run/sbx/scratch/git
git init --quiet --bare --template= --object-format=$format $GIT_DIR || exit 1
# The snapshots first: programs of the session write the other ones.
printf '%s\n' $shadow/objects /workspace/.git/objects >$GIT_DIR/objects/info/alternates
git cat-file -e "$commit^{commit}" || exit 14
base=$(git rev-parse "$commit^{tree}") || exit 14
[ -n "$since" ] && [ -e "$shadow/refs/snapshots/$since" ] || since=$base
printf '%s\n%s\n^%s\n' "$snapshot" "$since" "$base" | git pack-objects --quiet --revs --stdout >/run/sbx/scratch/pack || exit 1
[ "$(used)" -le "$limit" ] || exit 19
cp "$shadow/left/$snapshot" /run/sbx/scratch/left 2>/dev/null || : >/run/sbx/scratch/left
echo "$since"
