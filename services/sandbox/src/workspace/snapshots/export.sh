# $1: base commit  $2: snapshot  $3: the branch of the files, or nothing. Prints a commit of the snapshot's files on top of the base, the length of what it lacks, which
# is nothing, and a bundle with all of its history.
base=$1 snapshot=$2 branch=$3
[ -e "/run/sbx/snapshots/git/refs/snapshots/$snapshot" ] || exit 17
format=sha1
[ ${#base} = 40 ] || format=sha256
export GIT_DIR=/run/sbx/scratch/git
git init --quiet --bare --template= --object-format=$format $GIT_DIR || exit 1
printf '%s\n' /workspace/.git/objects /run/sbx/snapshots/git/objects >$GIT_DIR/objects/info/alternates
# Where the history ends, if the session has only a part of it.
shallow=/workspace/.git/shallow
[ ! -f $shallow ] || [ -L $shallow ] || cp $shallow $GIT_DIR/shallow || exit 1
git cat-file -e "$base^{commit}" || exit 14
commit=$(git commit-tree -p "$base" -m 'Files of a fork' "$snapshot") || exit 1
# The workspace names it, so it may be anything.
git check-ref-format --branch "$branch" >/dev/null 2>&1 || branch=main
git update-ref "refs/heads/$branch" "$commit" 2>/dev/null || {
  # Too long for a file.
  branch=main
  git update-ref refs/heads/main "$commit" || exit 1
}
echo "$commit 0"
if [ -e $GIT_DIR/shallow ]; then
  # The workspace that starts from the bundle knows the ends by these references.
  git rev-list --max-parents=0 "$commit" | sort | comm -12 - <(sort $GIT_DIR/shallow) | awk '{ print "create refs/flotilla/shallow/" NR - 1 " " $1 }' |
    git update-ref --stdin || exit 1
  git bundle create --quiet - "refs/heads/$branch" --glob='refs/flotilla/shallow/*'
else
  git bundle create --quiet - "refs/heads/$branch"
fi
