# $1: base commit  $2: bytes of one file at most  $3: of all  $4: files at most
# Prints for each file of configuration in that commit its path, its length and its bytes; a length of -1: too large, -2:
# a link, -3: one file too many. No program of the tenant has run in this repository yet.
cd /workspace || exit 1
[ -d .git ] || exit 1
left=$3 count=0
print() {
  printf '%s\0%s\0' "$1" "$2"
}
while read -r -d '' mode kind object path; do
  case $path in
  opencode.json | opencode.jsonc | .opencode/opencode.json | .opencode/opencode.jsonc) ;;
  .flotilla/config.yaml | .devcontainer.json | .devcontainer/devcontainer.json) ;;
  .github/workflows/copilot-setup-steps.yml) ;;
  .opencode/agent/*.md | .opencode/agents/*.md | .opencode/command/*.md | .opencode/commands/*.md) ;;
  *) continue ;;
  esac
  if [ "$mode" = 120000 ]; then
    print "$path" -2
    continue
  fi
  [ "$kind" = blob ] || continue
  count=$((count + 1))
  if [ $count -gt "$4" ]; then
    print "$path" -3
    break
  fi
  size=$(git cat-file -s "$object") || exit 1
  if [ "$size" -gt "$2" ] || [ "$size" -gt $left ]; then
    print "$path" -1
    continue
  fi
  left=$((left - size))
  print "$path" "$size"
  git cat-file blob "$object" || exit 1
done < <(git ls-tree -r -z "$1" -- "${configuration_places[@]}")
