# $1: the tree since which the copy has changed  $2: the snapshot of our files  $3: the snapshot of the files of the copy, whose objects and list of large files are in
# /run/sbx/copy  $4: KiB that the merge and all snapshots may take  $5: files with conflicts to be named  $6: bytes of their patch at most
# Prints the snapshot of the merged files, how many of our files it changes, how many have conflicts, and the length of the names of those; the
# names; and a patch that writes the conflicts into the merged files.
base=$1 ours=$2 theirs=$3 limit=$4 named=$5 patch=$6
scratch=/run/sbx/scratch copy=/run/sbx/copy shadow=/run/sbx/snapshots/git
used() { du -skc $scratch $copy $shadow/objects 2>/dev/null | tail -n 1 | cut -f1; }
count() { tr -cd '\0' <"$1" | wc -c; }
changes() { git -c core.bigFileThreshold=8m diff-tree -r --no-color --no-ext-diff --no-textconv --no-renames "$@"; }
[ -e "$shadow/refs/snapshots/$ours" ] || exit 17
bound
format=sha1 zero=0000000000000000000000000000000000000000
[ ${#ours} = 40 ] || format=sha256 zero=${zero}000000000000000000000000
export GIT_DIR=$scratch/git GIT_INDEX_FILE=/tmp/index GIT_LITERAL_PATHSPECS=1
git init --quiet --bare --template= --object-format=$format $GIT_DIR || exit 1
mkdir -p $GIT_DIR/info
echo '* -text -ident !eol !diff !merge !working-tree-encoding' >$GIT_DIR/info/attributes
echo $shadow/objects >$GIT_DIR/objects/info/alternates
git unpack-objects -q <$copy/pack || exit 22
# The branches have the names that the conflict markers show. Git 2.39 takes the common ancestor from the commits only.
commit() { git commit-tree -m 'Files of a merge' "$@"; }
root=$(commit "$base") || exit 22
git update-ref refs/heads/parent "$(commit -p "$root" "$ours")" || exit 22
git update-ref refs/heads/subtask "$(commit -p "$root" "$theirs")" || exit 22
git -c merge.directoryRenames=false -c merge.conflictStyle=merge \
  merge-tree --write-tree -z --name-only --no-messages parent subtask >/tmp/merge
[ $? -le 1 ] || exit 22
IFS= read -r -d '' merged </tmp/merge || exit 22

# Gives the files of a list the state that they have in our files.
keep_ours() {
  [ -s "$1" ] || return 0
  {
    while IFS= read -r -d '' name; do printf '0 %s\t%s\0' $zero "$name"; done <"$1"
    xargs -0 -a "$1" git ls-tree -rz "$ours" --
  } | git update-index --replace -z --index-info
}

# Whether our files have something at a place, or instead of a directory above it, that our snapshot does not have: git ignores it, or it is too large.
is_hidden() {
  local above=$1
  if [ -d "/workspace/$1" ] && [ ! -L "/workspace/$1" ]; then
    # A directory that becomes a file.
    [ "$(find "/workspace/$1" ! -type d -printf . | wc -c)" != "$(git ls-tree -rz "$ours" -- "$1" | tr -cd '\0' | wc -c)" ]
    return
  fi
  [ ! -e "/workspace/$1" ] && [ ! -L "/workspace/$1" ] || return 0
  while [ "$above" != "${above%/*}" ]; do
    above=${above%/*}
    if [ -L "/workspace/$above" ] || { [ -e "/workspace/$above" ] && [ ! -d "/workspace/$above" ]; }; then
      [ -n "$(git ls-tree "$ours" -- "$above")" ] || return 0
    fi
  done
  return 1
}

git read-tree "$merged" || exit 22
# A snapshot does not have files that are too large, so they look removed.
sed -z 's/^[^ ]* //' <$copy/left >/tmp/left
changes --name-only --diff-filter=A -z "$ours" "$merged" | while IFS= read -r -d '' name; do
  ! is_hidden "$name" || printf '%s\0' "$name"
done >/tmp/hidden
# Neither is in the patch of the conflicts: git would refuse to write it.
keep_ours /tmp/left && keep_ours /tmp/hidden || exit 22
merged=$(git write-tree) || exit 22
tail -z -n +2 /tmp/merge >/tmp/names
{
  while IFS= read -r -d '' name; do
    printf '%s\0' "$name"
    # A file that makes room for a directory of the other side.
    case $name in *~parent* | *~subtask*) printf '%s\0' "${name%~*}" ;; esac
  done </tmp/names
  cat /tmp/hidden
} >/tmp/conflicts
keep_ours /tmp/conflicts || exit 22
final=$(git write-tree) || exit 22

# The snapshots must have every object of the new one.
printf '%s\n^%s\n' "$final" "$ours" | git pack-objects --quiet --revs --stdout >$scratch/final || exit 22
GIT_DIR=$shadow git unpack-objects -q <$scratch/final || exit 18
[ "$(used)" -le "$limit" ] || exit 19
echo "$final" >$shadow/given && mv -f $shadow/given "$shadow/refs/snapshots/$final" || exit 18

changes --name-only -z "$ours" "$final" >/tmp/changed
changes --name-only -z "$final" "$merged" >>/tmp/conflicts
sort -zu /tmp/conflicts >/tmp/sorted
head -z -n "$named" /tmp/sorted >/tmp/named
echo "$final $(count /tmp/changed) $(count /tmp/sorted) $(stat -c %s /tmp/named)"
cat /tmp/named
changes --patch --binary --full-index "$final" "$merged" | head -c "$patch"
