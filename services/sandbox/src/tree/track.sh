# Every process costs some milliseconds in each step of a turn, so the shell itself does what it can.
# $1: object format  $2: bytes of an untracked file at most  $3: KiB of all snapshots at most  $4: minutes that a snapshot is
# kept  $5: minutes between two removals of old ones  $6: paths to be named  $7: bytes of a tracked file at most
# Prints the snapshot and how many files are too large, then the first of those, each with a NUL.
begin() {
  [ ! -e $shadow ] || rm -rf $shadow
  (unset GIT_DIR GIT_WORK_TREE && git init --quiet --bare --template= --object-format="$format" $shadow) || exit 1
  # The last value of a setting counts.
  printf '[core]\n\tbare = false\n\tlooseCompression = 1\n' >>$shadow/config
  mkdir -p $shadow/info $shadow/refs/snapshots $shadow/left
  if [ -e /run/sbx/snapshots/seed ]; then
    echo /run/sbx/snapshots/base >$shadow/objects/info/alternates
    cp /run/sbx/snapshots/seed $GIT_INDEX_FILE
    git ls-files -s -z >/tmp/seeded
    [ ! -s /tmp/seeded ] || correct_seed
  fi
  # Bytes are kept as they are. Drivers are programs, and none has a definition here but that of lfs-filter.sh.
  echo '* -text -ident !eol !crlf !diff !merge !working-tree-encoding' >$shadow/info/attributes
  [ ! -e /run/sbx/snapshots/excluded ] || cp /run/sbx/snapshots/excluded $shadow/info/exclude
  printf '%(%s)T\n' -1 >$shadow/swept
  : >$shadow/ready
}

correct_seed() {
  # The index has other bytes than a file that the checkout converts, so such files are read again. Files of Git LFS were filled when the index was written.
  git ls-files -s -z -- . ':(exclude,attr:!text !eol !crlf !ident !filter !working-tree-encoding)' ':(exclude,attr:filter=lfs -text)' |
    git update-index -z --index-info
  # The commit of a nested repository is not content.
  LC_ALL=C grep -za '^160000 ' /tmp/seeded | LC_ALL=C sed -z 's/^[^\t]*\t//' | git update-index -z --force-remove --stdin
}

sweep() {
  find $shadow/refs/snapshots $shadow/left -type f -mmin "+$kept" -delete
  git prune --expire="$kept.minutes.ago"
  printf '%(%s)T\n' -1 >$shadow/swept
}

# Whether the last removal of old snapshots is long ago. Earlier versions kept its time as that of the file, which was empty.
is_unswept() {
  local now at
  printf -v now '%(%s)T' -1
  { read -r at <$shadow/swept; } 2>/dev/null
  # After a crash of the machine the file may have anything.
  [[ ${at-} =~ ^[1-9][0-9]{0,11}$ ]] || at=0
  ((now - at > pause * 60))
}

others() { git ls-files -z --others --exclude-standard >/tmp/others; }

# Forgets tracked files that have grown too large: git would read all of them, also if they have no blocks. They are untracked from now on.
forget_grown() {
  git ls-files -z >/tmp/tracked
  [ -s /tmp/tracked ] || return 0
  find -files0-from /tmp/tracked -maxdepth 0 -type f -size "+${grown}c" -print0 >/tmp/grown 2>/dev/null
  [ -s /tmp/grown ] || return 0
  if list_unchanged; then
    without_unchanged </tmp/grown >/tmp/grown-else && mv -f /tmp/grown-else /tmp/grown
    [ -s /tmp/grown ] || return 0
  fi
  git update-index -z --force-remove --stdin </tmp/grown
  others || exit 1
}

# Keeps the names and sizes of the files that a snapshot leaves out, so that a comparison need not take them for removed.
keep_left() {
  if [ ! -s /tmp/large ]; then
    [ ! -e "$shadow/left/$1" ] || rm -f "$shadow/left/$1"
    return
  fi
  find -files0-from /tmp/large -maxdepth 0 -printf '%s %p\0' 2>/dev/null | head -z -n 200 >$shadow/given && mv -f $shadow/given "$shadow/left/$1"
}

# Sorts the untracked files of the last look: enters nested repositories level by level, and records large files.
look() {
  local round directory
  for round in 1 2 3 4 5 6 7 8; do
    : >/tmp/large
    : >/tmp/nested
    [ -s /tmp/others ] || return 0
    find -files0-from /tmp/others -maxdepth 0 \( -type d -fprint0 /tmp/nested \) -o \( -type f -size "+${large}c" -fprint0 /tmp/large \) 2>/dev/null
    [ -s /tmp/nested ] || return 0
    while IFS= read -r -d '' directory; do enter_nested "$directory"; done </tmp/nested >/tmp/entered
    [ -s /tmp/entered ] || return 0
    git update-index -z --index-info </tmp/entered || return 0
    others || exit 1
  done
}

add() {
  local path list
  if [ ! -s /tmp/others ]; then
    git add --update --ignore-errors .
    return
  fi
  {
    printf '.\0'
    for list in /tmp/large /tmp/nested; do
      while IFS= read -r -d '' path; do printf ':(exclude,literal)%s\0' "$path"; done <$list
    done
  } >/tmp/paths
  git add --all --ignore-errors --pathspec-from-file=/tmp/paths --pathspec-file-nul
}

used() {
  local kib
  read -r kib _ < <(du -sk $shadow/objects)
  echo "$kib"
}

format=$1 large=$2 limit=$3 kept=$4 pause=$5 named=$6 grown=$7
[ -e $shadow/ready ] || begin
for lock in $shadow/*.lock; do [ ! -e "$lock" ] || rm -f "$lock"; done
[ -d $shadow/left ] || mkdir $shadow/left
# Usually nothing has changed since the last snapshot; one process checks that.
last() {
  local tree
  [ -e $shadow/last ] && read -r tree <$shadow/last && [ -f "$shadow/refs/snapshots/$tree" ] || return 1
  # Git reads a file whose time says nothing; one that has grown too large would take minutes.
  timeout 10 git -c core.hooksPath=/dev/null -c core.fsmonitor=false ls-files -z --others --modified --exclude-standard >/tmp/changed 2>/dev/null &&
    [ ! -s /tmp/changed ] || return 1
  touch "$shadow/refs/snapshots/$tree" && echo "$tree 0"
}
last && exit 0
# One snapshot of a large tree must not exceed the limit by much.
bound
! is_unswept || sweep
# After a machine crash the index may be broken; without it git reads every file again.
others 2>/dev/null || { rm -f $GIT_INDEX_FILE && others; } || exit 1
forget_grown
look
add 2>/tmp/errors >&2
[ ! -s /tmp/errors ] || ! grep -q 'No space left' /tmp/errors || exit 18
tree=$(git write-tree) || exit 1
if [ ! -e "$shadow/refs/snapshots/$tree" ]; then
  [ "$(used)" -le "$limit" ] || exit 19
fi
echo "$tree" >$shadow/given && mv -f $shadow/given "$shadow/refs/snapshots/$tree" || exit 18
# A part of a line names no snapshot, so this file needs no second name.
echo "$tree" >$shadow/last
keep_left "$tree"
if [ -s /tmp/large ]; then
  echo "$tree $(tr -cd '\0' </tmp/large | wc -c)"
  head -z -n "$named" /tmp/large
else
  echo "$tree 0"
fi
