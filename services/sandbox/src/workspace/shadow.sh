# A separate git directory next to the workspace, so that neither its index nor its configuration is used.
# $1: base commit  $2: bytes of a file at most  $3: "refuse" larger files, or "leave" them as the base has them
# The workspace's objects are read where they are; new ones go to the scratch directory. $attributes, if set, replaces how git reads files.
base=$1
shadow=/run/sbx/scratch/git
format=sha1
[ ${#base} = 40 ] || format=sha256
git init --quiet --bare --template= --object-format=$format $shadow || exit 1
mkdir -p $shadow/info
echo /workspace/.git/objects >$shadow/objects/info/alternates
# Drivers are programs, and none has a definition here but that of lfs-filter.sh. Line ends stay as the repository sets them; otherwise a checkout with CRLF would be all changes.
echo "${attributes:-* !diff !merge}" >$shadow/info/attributes
[ ! -e /run/sbx/scratch/excluded ] || cp /run/sbx/scratch/excluded $shadow/info/exclude
# The last value of a setting counts.
printf '[core]\n\tbare = false\n' >>$shadow/config
export GIT_DIR=$shadow GIT_WORK_TREE=/workspace GIT_INDEX_FILE=$shadow/index
cd /workspace || exit 1
git read-tree "$base^{commit}" || exit 14
# The base has them as they are.
: >/tmp/lfs-unchanged
[ -n "${attributes-}" ] || ! list_unchanged || git update-index --assume-unchanged -z --stdin </tmp/lfs-unchanged
# Git would read all of a large file, also if it has no blocks.
git ls-files -z --cached --others --exclude-standard | without_unchanged >/tmp/files
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
# A nested repository would become a link to a commit that no other repository has.
git diff-index --cached --raw -z --no-renames --ignore-submodules=none "$base" | while IFS= read -r -d '' change && IFS= read -r -d '' path; do
  case $change in
  ':000000 160000 '*) git update-index --force-remove -- "$path" ;;
  esac
done
