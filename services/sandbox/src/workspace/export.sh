# $4: "yes" when the base commit is ours  $5: message  $6: commits of the session at most  $7: bytes of their objects at most
# $8: a line for the end of each message, or nothing  $9: "yes" for one commit in any case
# Prints the commit and the length of what the result lacks, these records and, if the commit is not the base, a bundle.
# The commits of the session come as they are, with one more for what it has not committed. With a line for the messages, they become commits of Flotilla with the same
# authors, times and files; the same commits always become the same.
ours=$4 message=$5 commits_max=$6 objects_bytes_max=$7 line=$8 squash=$9

# join_message MESSAGE: the message with the line.
join_message() {
  if [ -z "$line" ]; then printf '%s\n' "$1"; else printf '%s\n\n%s\n' "$1" "$line"; fi
}

# Why the commits of the session are not in the result; empty: they can be.
find_obstacle() {
  git merge-base --is-ancestor "$base" "$head" || { echo rewritten && return; }
  commits=$(git rev-list --count "$base..$head") || exit 1
  [ "$commits" -le "$commits_max" ] || { echo many && return; }
  [ "$(git rev-list --disk-usage --objects "$base..$head")" -le "$objects_bytes_max" ] || { echo large && return; }
  [ -n "$line" ] || return 0
  [ -z "$(git rev-list --min-parents=2 --max-count=1 "$base..$head")" ] || { echo merge && return; }
  # Each content of Git LFS becomes a pointer, and only in the newest commit.
  ! read -r -d '' _ < <(git ls-files -z -- ':(attr:filter=lfs)') || echo lfs
}

# Prints the copies of the session's commits with the line, the newest one last.
copy_commits() {
  local id tree parent=$base text
  while read -r id; do
    tree=$(git rev-parse "$id^{tree}") || exit 1
    { IFS= read -r GIT_AUTHOR_NAME && IFS= read -r GIT_AUTHOR_EMAIL && IFS= read -r GIT_AUTHOR_DATE && IFS= read -r GIT_COMMITTER_DATE && IFS= read -r -d '' text; } \
      < <(git show --no-patch --format='%an%n%ae%n%ad%n%cd%n%B' --date=raw "$id" && printf '\0')
    export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_DATE
    while [ "${text%$'\n'}" != "$text" ]; do text=${text%$'\n'}; done
    parent=$(join_message "$text" | git commit-tree -p "$parent" "$tree") || exit 1
  done < <(git rev-list --reverse "$base..$head")
  echo "$parent"
}

parent=$base
if [ -n "$head" ]; then
  obstacle=
  if [ "$squash" != yes ]; then
    obstacle=$(find_obstacle) || exit 1
    commits=$(git rev-list --count "$base..$head") || exit 1
  fi
  if [ -n "$obstacle" ]; then
    [ "$commits" = 0 ] || printf 'commits %s %s\0' "$commits" "$obstacle" >>/tmp/left
  elif [ "$squash" != yes ]; then
    parent=$head
  fi
fi
# The result has such a file as the last commit has it.
if [ "$parent" = "$head" ] && [ -s /tmp/unreadable ]; then
  GIT_LITERAL_PATHSPECS=1 xargs -0 -a /tmp/unreadable git ls-tree -rz "$head" -- | git update-index -z --index-info || exit 1
fi
tree=$(git write-tree) || exit 1
last=$(git rev-parse "$parent^{tree}") || exit 1
if [ "$parent" = "$head" ] && [ -n "$line" ]; then
  parent=$(copy_commits 2>/dev/null) || {
    # A program of the session wrote a commit that git would not make.
    printf 'commits %s %s\0' "$commits" broken >>/tmp/left
    parent=$base
    last=$(git rev-parse "$base^{tree}") || exit 1
  }
fi
commit=$parent
[ "$tree" = "$last" ] || commit=$(join_message "$message" | git commit-tree -p "$parent" "$tree") || exit 1
echo "$commit $(stat -c %s /tmp/left)"
cat /tmp/left
[ "$commit" != "$base" ] || exit 0
echo "$commit" >$shadow/refs/heads/flotilla || exit 1
if [ "$ours" = yes ]; then
  git bundle create --quiet - refs/heads/flotilla
else
  git bundle create --quiet - refs/heads/flotilla "^$base"
fi
