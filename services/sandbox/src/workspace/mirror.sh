# The mirror: what an earlier clone of the project has left of the repository. Git reads it after the server has answered, and the files of the new
# clone share nothing with it in the end.
mirror=/run/sbx/mirror
has_mirror() { [ -d $mirror ]; }

# Whether every pack of the mirror has the bytes that it was written with.
is_whole() { (cd $mirror/objects/pack && cksum -- * | cmp -s - $mirror/sums) 2>/dev/null; }

# After an error of git that the mirror may have caused.
suspect_mirror() { ! has_mirror || is_whole || exit 19; }

# Without bitmaps and lists for servers, which a clone does not have either. What git has compressed stays so.
repack() { git repack --quiet -n -d --window=0 "$@"; }

# take_over PACKS: takes the objects out of the mirror that a clone would have, in that many packs at most.
take_over() {
  local check lost packs
  is_whole &
  check=$!
  sed -n 's| refs/tips/.*||p' $mirror/packed-refs >/tmp/mirror-tips
  comm -23 /tmp/mirror-tips /tmp/tips >/tmp/old-tips || exit 19
  lost=
  [ ! -s /tmp/old-tips ] ||
    lost=$({ git rev-list --objects --stdin --not --all </tmp/old-tips 2>/dev/null || echo failed; } | head -n 1)
  [ -n "$lost" ] || cp -- $mirror/objects/pack/* .git/objects/pack/ || exit 19
  wait $check || exit 19
  # The server took something back. The session must not get it from here.
  [ -z "$lost" ] || repack -a || exit 19
  rm .git/objects/info/alternates || exit 19
  packs=(.git/objects/pack/*.pack)
  [ ${#packs[@]} -le "$1" ] || repack --geometric=2 2>/dev/null || repack -a || exit 19
}

# settle PACKS: makes the new clone independent of the mirror, and notes what it has. Later steps may fetch what is in no branch and no tag.
settle() {
  { git for-each-ref --format='%(objectname)' && git rev-parse --quiet --verify HEAD; } | sort -u >/tmp/tips
  ! has_mirror || take_over "$1"
  find .git/objects/pack -name 'pack-*' -type f -printf '%f\n' | sort >/tmp/files
}

# report TIPS: prints the packs and what the references name, for the next mirror. Prints nothing if the mirror has the same, or cannot have it.
report() {
  local name
  [ ! -e .git/shallow ] && [ "$(wc -l </tmp/tips)" -le "$1" ] && grep -qx '[0-9a-f]\{40\}' /tmp/tips || return 0
  if has_mirror && cmp -s /tmp/tips /tmp/mirror-tips && cut -d ' ' -f 3 $mirror/sums | cmp -s - /tmp/files; then
    return 0
  fi
  sed 's/^/tip /' /tmp/tips
  cd .git/objects/pack || return 0
  while IFS= read -r name; do
    printf 'pack '
    { has_mirror && grep " $name\$" $mirror/sums; } || cksum -- "$name"
  done </tmp/files
}
