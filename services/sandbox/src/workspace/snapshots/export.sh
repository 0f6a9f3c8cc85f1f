# $1: base commit  $2: snapshot  $3: the branch of the files, or nothing. Prints a commit of the snapshot's files on top of the base, and a bundle with all of its history.
base=$1 snapshot=$2 branch=$3
[ -e "/run/sbx/snapshots/git/refs/snapshots/$snapshot" ] || exit 17
format=sha1
[ ${#base} = 40 ] || format=sha256
export GIT_DIR=/run/sbx/scratch/git
git init --quiet --bare --template= --object-format=$format $GIT_DIR || exit 1
printf '%s\n' /workspace/.git/objects /run/sbx/snapshots/git/objects >$GIT_DIR/objects/info/alternates
git cat-file -e "$base^{commit}" || exit 14
commit=$(git commit-tree -p "$base" -m 'Files of a fork' "$snapshot") || exit 1
# The workspace names it, so it may be anything.
git check-ref-format --branch "$branch" >/dev/null 2>&1 || branch=main
git update-ref "refs/heads/$branch" "$commit" 2>/dev/null || {
  # Too long for a file.
  branch=main
  git update-ref refs/heads/main "$commit" || exit 1
}
echo "$commit"
git bundle create --quiet - "refs/heads/$branch"
