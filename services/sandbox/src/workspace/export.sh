# $4: "yes" when the base commit is ours  $5: message. Prints the commit and, if it is not the base, a bundle.
if [ -z "$changed" ]; then
  echo "$base"
  exit 0
fi
tree=$(git write-tree) || exit 1
commit=$(git commit-tree -p "$base" -m "$5" "$tree") || exit 1
echo "$commit" >$shadow/refs/heads/flotilla || exit 1
echo "$commit"
if [ "$4" = yes ]; then
  git bundle create --quiet - refs/heads/flotilla
else
  git bundle create --quiet - refs/heads/flotilla "^$base"
fi
