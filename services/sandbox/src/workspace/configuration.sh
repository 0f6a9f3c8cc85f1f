# $1: base commit  $2: bytes of one file at most  $3: of all  $4: files at most  from $5: files that the configuration names
# Prints for each file of configuration in that commit, or for each named one, its path, its length and its bytes; a length of -1: too large, -2:
# a link, -3: one file too many. No program of the tenant has run in this repository yet.
cd /workspace || exit 1
[ -d .git ] || exit 1
left=$3 most=$4 count=0
commit=$1 file_most=$2
shift 4
declare -A named=()
for path; do named[$path]=1; done
[ $# = 0 ] || configuration_places=("$@")
# The names of files are no patterns.
export GIT_LITERAL_PATHSPECS=1
print() {
  printf '%s\0%s\0' "$1" "$2"
}
while read -r -d '' mode kind object path; do
  if [ $# != 0 ]; then
    [ "${named[$path]:-}" ] || continue
  else
    case $path in
    opencode.json | opencode.jsonc | .opencode/opencode.json | .opencode/opencode.jsonc) ;;
    .flotilla/config.yaml | .devcontainer.json | .devcontainer/devcontainer.json) ;;
    .github/workflows/copilot-setup-steps.yml | .claude/settings.json | .claude/settings.local.json) ;;
    .opencode/agent/*.md | .opencode/agents/*.md | .opencode/command/*.md | .opencode/commands/*.md) ;;
    .opencode/mode/*.md | .opencode/modes/*.md) ;;
    *) continue ;;
    esac
  fi
  if [ "$mode" = 120000 ]; then
    print "$path" -2
    continue
  fi
  [ "$kind" = blob ] || continue
  count=$((count + 1))
  if [ $count -gt "$most" ]; then
    print "$path" -3
    break
  fi
  size=$(git cat-file -s "$object") || exit 1
  if [ "$size" -gt "$file_most" ] || [ "$size" -gt $left ]; then
    print "$path" -1
    continue
  fi
  left=$((left - size))
  print "$path" "$size"
  git cat-file blob "$object" || exit 1
done < <(git ls-tree -r -z "$commit" -- "${configuration_places[@]}")
