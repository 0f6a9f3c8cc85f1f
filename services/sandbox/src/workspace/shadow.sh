# A separate git directory next to the workspace, so that neither its index nor its configuration is used.
# $1: base commit  $2: bytes of a file at most  $3: "refuse" larger files, or "leave" them as the base has them
# The workspace's objects are read where they are; new ones go to the scratch directory. $attributes, if set, replaces how git reads files.
base=$1
shadow=/run/sbx/scratch/git
format=sha1
[ ${#base} = 40 ] || format=sha256
# What `git init` would make, without its process. The file of what git ignores may be missing.
mkdir -p $shadow/info $shadow/objects/info $shadow/refs/heads || exit 1
echo 'ref: refs/heads/main' >$shadow/HEAD
printf '[core]\n\trepositoryformatversion = 1\n\tbare = false\n\texcludesFile = %s\n[extensions]\n\tobjectformat = %s\n' \
  /run/sbx/scratch/excluded $format >$shadow/config || exit 1
echo /workspace/.git/objects >$shadow/objects/info/alternates
# Drivers are programs, and none has a definition here but that of lfs-filter.sh. Line ends stay as the repository sets them; otherwise a checkout with CRLF would be all changes.
echo "${attributes:-* !diff !merge}" >$shadow/info/attributes
export GIT_DIR=$shadow GIT_WORK_TREE=/workspace GIT_INDEX_FILE=$shadow/index
cd /workspace || exit 1
git read-tree "$base^{commit}" || exit 14
# The base has them as they are.
: >/tmp/lfs-unchanged
[ -n "${attributes-}" ] || ! list_unchanged || git update-index --assume-unchanged -z --stdin </tmp/lfs-unchanged
# Git would read all of a large file, also if it has no blocks.
list_files() { git ls-files -z --cached --others --exclude-standard; }
if [ -s /tmp/lfs-unchanged ]; then list_files | without_unchanged; else list_files; fi >/tmp/files
: >/tmp/large
[ ! -s /tmp/files ] || find -files0-from /tmp/files -maxdepth 0 -type f -size "+${2}c" -printf '%s %p\0' >/tmp/large 2>/dev/null
if [ "$3" = refuse ] && [ -s /tmp/large ]; then
  head -z -n 5 /tmp/large >&2
  exit 20
fi
{
  printf '.\0'
  while IFS= read -r -d '' record; do printf ':(exclude,literal)%s\0' "${record#* }"; done </tmp/large
} >/tmp/paths
# Unreadable files and repositories without a commit are skipped; git reports them on standard error.
git -c core.compression=1 add --all --ignore-errors --pathspec-from-file=/tmp/paths --pathspec-file-nul >/dev/null
git diff-index --cached --raw -z --no-renames --ignore-submodules=none "$base" >/tmp/changes || exit 1
# Whether any file differs from the base.
changed=
while IFS= read -r -d '' change && IFS= read -r -d '' path; do
  case $change in
  # A nested repository would become a link to a commit that no other repository has.
  ':000000 160000 '*) git update-index --force-remove -- "$path" ;;
  *) changed=yes ;;
  esac
done </tmp/changes
