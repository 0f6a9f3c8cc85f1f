# What the session has committed. Git reads copies of its references, and no configuration of the workspace.
# Sets $head: the checked-out commit, if it is another one than the base. Adds to /tmp/left what no result has: branches and stashes.
base=$1
format=sha1
[ ${#base} = 40 ] || format=sha256
repository=/workspace/.git
refs=/tmp/refs
# Branches whose commits are counted. Nobody reads more names.
branches_max=20
# KiB of a file of references, and files with one reference each. A repository with more is told as one whose branches are unknown.
file_kib_max=16384
loose_max=5000
: >/tmp/left
# A file without blocks would take minutes to read.
is_readable=yes
[ -z "$(find $repository/HEAD $repository/shallow $repository/packed-refs $repository/refs $repository/logs/refs/stash -type f -size "+${file_kib_max}k" -print -quit 2>/dev/null)" ] || is_readable=

# make_repository DIRECTORY: makes what `git init` would, without its process. The file of what git ignores may be missing.
make_repository() {
  mkdir -p "$1/info" "$1/objects/info" "$1/refs/heads" || exit 1
  echo 'ref: refs/heads/main' >"$1/HEAD"
  printf '[core]\n\trepositoryformatversion = 1\n\tbare = false\n\texcludesFile = %s\n[extensions]\n\tobjectformat = %s\n' \
    /run/sbx/scratch/excluded $format >"$1/config" || exit 1
  echo $repository/objects >"$1/objects/info/alternates"
  # Where the history ends, if the session has only a part of it.
  [ -z "$is_readable" ] || ! is_file $repository/shallow || cp $repository/shallow "$1/shallow" || exit 1
}

is_file() { [ -f "$1" ] && [ ! -L "$1" ]; }

# Whether the checked-out branch is at the base and there is no other branch and no stash, as in most sessions. Starts no process.
is_untouched() {
  local head at packed=''
  is_file $repository/HEAD && read -r head <$repository/HEAD || return 1
  case $head in
  'ref: refs/heads/'*)
    head=${head#ref: }
    case $head in *..*) return 1 ;; esac
    is_file "$repository/$head" && read -r at <"$repository/$head" && [ "$at" = "$base" ] || return 1
    ;;
  "$base") head='' ;;
  *) return 1 ;;
  esac
  [ ! -e $repository/refs/stash ] || return 1
  if is_file $repository/packed-refs; then
    packed=$(<$repository/packed-refs)
    case $packed in *' refs/heads/'* | *' refs/stash'*) return 1 ;; esac
  fi
  local name names
  shopt -s globstar dotglob nullglob
  names=($repository/refs/heads/**)
  shopt -u globstar dotglob nullglob
  for name in "${names[@]}"; do
    [ -d "$name" ] || [ "$name" = "$repository/$head" ] || return 1
  done
}

# Makes the repository with copies of the references.
copy_references() {
  make_repository $refs
  rmdir $refs/refs/heads
  is_file $repository/HEAD && cp $repository/HEAD $refs/HEAD || return 1
  ! is_file $repository/packed-refs || cp $repository/packed-refs $refs/packed-refs || return 1
  (cd $repository && find refs -type f -size -8 -print0 | head -z -n $((loose_max + 1))) >/tmp/loose
  [ "$(tr -cd '\0' </tmp/loose | wc -c)" -le $loose_max ] || return 1
  mkdir -p $refs/refs/heads
  [ ! -s /tmp/loose ] || (cd $repository && xargs -0 -a /tmp/loose cp --parents -t $refs) || return 1
}

of_references() { GIT_DIR=$refs git "$@"; }

# Counts the commits of a tip that neither the result nor a remote branch has.
count_beyond() { of_references rev-list --count "$1" --not "$base" ${head:+"$head"} --remotes 2>/dev/null; }

find_branches() {
  local id name count=0 beyond
  while read -r id name; do
    [ "$id" != "$base" ] && [ "$id" != "$head" ] || continue
    count=$((count + 1))
    [ $count -le $branches_max ] || break
    beyond=$(count_beyond "$id")
    [ "${beyond:-0}" = 0 ] || printf 'branch %s %s\0' "$beyond" "$name"
  done < <(of_references for-each-ref --format='%(objectname) %(refname:lstrip=2)' refs/heads 2>/dev/null)
}

find_stashes() {
  local entries=1
  of_references rev-parse --quiet --verify refs/stash >/dev/null 2>&1 || return 0
  ! is_file $repository/logs/refs/stash || entries=$(wc -l <$repository/logs/refs/stash)
  printf 'stash %s\0' "$entries"
}

head=
# Files that are compared byte for byte have no commits of their own.
if [ -z "${attributes-}" ] && [ -d $repository ] && [ ! -L $repository ] && { [ -z "$is_readable" ] || ! is_untouched; }; then
  if [ -n "$is_readable" ] && copy_references 2>/dev/null; then
    head=$(of_references rev-parse --quiet --verify 'HEAD^{commit}' 2>/dev/null) || head=
    [ "$head" != "$base" ] || head=
    { find_branches && find_stashes; } >>/tmp/left
  else
    printf 'branches\0' >>/tmp/left
  fi
fi
