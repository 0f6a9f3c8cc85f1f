# A separate git directory next to the workspace, so that neither its index nor its configuration is used.
# $1: base commit  $2: bytes of a file at most  $3: "refuse" larger files, or "leave" them as the base has them
# The workspace's objects are read where they are; new ones go to the scratch directory. $attributes, if set, replaces how git reads files, and the commits of the
# session then do not count.
# Git reads only files whose time or size differs from what an index knows, or that were written in the second of that index, and writes objects only for files that changed: it cannot refresh the pack of a
# read-only alternate, and would write an object for each file that it reads.
shadow=/run/sbx/scratch/git
# The index of the last look, or that of the clone.
seed=/run/sbx/snapshots/looked
[ -z "${attributes-}" ] && [ -e $seed ] || seed=/run/sbx/snapshots/seed
# With more changed files, one look at all files is quicker than to match each of them with each path.
paths_max=200
make_repository $shadow
# Drivers are programs, and none has a definition here but that of lfs-filter.sh. Line ends stay as the repository sets them; otherwise a checkout with CRLF would be all changes.
echo "${attributes:-* !diff !merge}" >$shadow/info/attributes
export GIT_DIR=$shadow GIT_WORK_TREE=/workspace GIT_INDEX_FILE=$shadow/index
cd /workspace || exit 1
# Files that the session committed are tracked, also if git ignores them.
tracked=${head:-$base}
echo "$tracked" >$shadow/HEAD

large_bytes=$2
# Whether the next look may begin with the index of this one.
is_kept=yes
[ -z "${attributes-}" ] || is_kept=
# find_left LIST: looks for those files of a list that are too large to read, with their sizes, and for those that cannot be read.
find_left() {
  [ ! -s "$1" ] || find -files0-from "$1" -maxdepth 0 -type f \( -size "+${large_bytes}c" -fprintf /tmp/large '%s %p\0' -o ! -readable -fprint0 /tmp/unreadable \) 2>/dev/null
}
# Makes git take files of a list for unchanged. Such an index is not kept: the next look would not see their changes.
assume_unchanged() {
  is_kept=
  git update-index --assume-unchanged -z --stdin
}
# Prints the paths of the large files.
large_paths() {
  local record
  while IFS= read -r -d '' record; do printf '%s\0' "${record#* }"; done </tmp/large
}
: >/tmp/large
: >/tmp/unreadable
: >/tmp/foreign

if [ -e $seed ]; then
  # With its time, by which git knows files that changed just when it was written.
  cp -p $seed $GIT_INDEX_FILE
  git diff-index --cached --quiet "$tracked" 2>/dev/null || git read-tree -i -m "$tracked^{commit}" || exit 14
else
  git read-tree "$tracked^{commit}" || exit 14
  # Git would read all of a large file, also if it has no blocks.
  git ls-files -z >/tmp/files
  find_left /tmp/files
  [ ! -s /tmp/large ] || assume_unchanged < <(large_paths)
  mv -f /tmp/large /tmp/grown
  git update-index -q --refresh >/dev/null
fi
# The base has them as they are.
[ -n "${attributes-}" ] || ! list_unchanged || assume_unchanged </tmp/lfs-unchanged

# Every process costs some milliseconds in each look, so the shell itself does what it can.
list_changed() {
  # It looks at the files on all processors. Of a submodule only its commit counts: its own configuration is the tenant's.
  GIT_OPTIONAL_LOCKS=1 git status --porcelain -z --no-renames --untracked-files=all --ignore-submodules=dirty 2>/tmp/unlisted | sed -z 's/^...//' >/tmp/changed
  mapfile -d '' -t changed </tmp/changed
}

# Takes the files of repositories that the session made in its files. One that has a remote, or a work tree of another one, is foreign: its files are not work of the session.
look_into_nested() {
  local round path
  local -A seen=()
  for round in 1 2 3 4 5 6 7 8; do
    : >/tmp/entered
    for path in "${changed[@]}"; do
      case $path in */) ;; *) continue ;; esac
      [ -z "${seen[$path]-}" ] || continue
      seen[$path]=yes
      if [ ! -d "$path.git" ] || [ -L "$path.git" ] || ! is_file "$path.git/config" || head -c 65536 "$path.git/config" | grep -q '^\[remote '; then
        printf '%s\0' "$path" >>/tmp/foreign
      else
        enter_nested "$path" >>/tmp/entered
      fi
    done
    [ -s /tmp/entered ] || return 0
    git update-index -z --index-info </tmp/entered || return 0
    list_changed
  done
}

# Adds to /tmp/left what of the changes the result lacks, and takes it out of /tmp/changed.
leave_out() {
  local path
  [ ! -s /tmp/unlisted ] || sed -n "s/^warning: could not open directory '\(.*\)': .*/\1/p" /tmp/unlisted | head -n 20 |
    while IFS= read -r path; do printf 'unreadable %s\0' "$path"; done >>/tmp/left
  [ -s /tmp/large ] || [ -s /tmp/foreign ] || [ -s /tmp/unreadable ] || return 0
  {
    while IFS= read -r -d '' path; do printf 'unreadable %s\0' "$path"; done </tmp/unreadable
    while IFS= read -r -d '' path; do printf 'foreign %s\0' "$path"; done </tmp/foreign
  } >>/tmp/left
  { large_paths && cat /tmp/foreign /tmp/unreadable; } | LC_ALL=C sort -zu >/tmp/left-paths
  LC_ALL=C sort -z /tmp/changed | LC_ALL=C comm -z -23 - /tmp/left-paths >/tmp/taken
  mv -f /tmp/taken /tmp/changed
}

add() { git -c core.compression=1 add --all --ignore-errors "$@" >/dev/null 2>&1; }
add_everything() {
  local path
  {
    printf '.\0'
    [ ! -e /tmp/left-paths ] || while IFS= read -r -d '' path; do printf ':(exclude,literal)%s\0' "$path"; done </tmp/left-paths
  } >/tmp/paths
  add --pathspec-from-file=/tmp/paths --pathspec-file-nul
}

list_changed
# The next look need not read what this one has read.
[ -z "$is_kept" ] || [ ! $GIT_INDEX_FILE -nt $seed ] || cp -p $GIT_INDEX_FILE /run/sbx/scratch/looked
look_into_nested
find_left /tmp/changed
[ ! -e /tmp/grown ] || cat /tmp/grown >>/tmp/large
if [ "$3" = refuse ] && [ -s /tmp/large ]; then
  head -z -n 5 /tmp/large >&2
  exit 20
fi
leave_out
if [ -s /tmp/changed ]; then
  # A file may vanish meanwhile, which ends git.
  [ ${#changed[@]} -le $paths_max ] &&
    GIT_LITERAL_PATHSPECS=1 add --pathspec-from-file=/tmp/changed --pathspec-file-nul || add_everything
fi
if [ -e /tmp/lfs-export ] && [ "$tracked" != "$base" ]; then
  # The session committed them without the rule of an export.
  git diff-tree -r -z --no-renames --diff-filter=AM --name-only "$base" "$tracked" >/tmp/committed
  [ ! -s /tmp/committed ] || GIT_LITERAL_PATHSPECS=1 git add --renormalize --ignore-errors --pathspec-from-file=/tmp/committed --pathspec-file-nul >/dev/null 2>&1
fi
git diff-index --cached --raw -z --no-renames --ignore-submodules=none "$base" >/tmp/changes || exit 14
# A nested repository that came meanwhile would become a link to a commit that no other repository has.
while IFS= read -r -d '' change && IFS= read -r -d '' path; do
  case $change in
  ':000000 160000 '*) git update-index --force-remove -- "$path" ;;
  esac
done </tmp/changes
