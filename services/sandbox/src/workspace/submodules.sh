# Clones the submodules of /workspace that the door of the session leads to. $1: KiB that all files may use  $2: submodules at most  $3: levels
limit=$1 left=$2
cd /workspace || exit 1
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound
open_door
# The door alone: every other URL is refused before git asks for it.
export GIT_ALLOW_PROTOCOL=http GIT_CONFIG_GLOBAL=/run/egress/gitconfig GIT_TEMPLATE_DIR=

clone_below() { # $1: a repository  $2: levels
  local path
  [ -f "$1/.gitmodules" ] || return 0
  while IFS= read -r -d '' path; do
    [ "$left" -gt 0 ] || return 0
    left=$((left - 1))
    if git -C "$1" submodule --quiet update --init --checkout -- "$path" >/dev/null 2>&1 </dev/null; then
      [ "$2" -le 1 ] || clone_below "$1/$path" $(($2 - 1))
    else
      # It stays empty, like one outside the prefixes.
      git -C "$1" submodule --quiet deinit --force -- "$path" >/dev/null 2>&1 </dev/null
    fi
  done < <(git -C "$1" ls-files --stage -z | grep -z '^160000 ' | cut -z -f 2-)
}
clone_below . "$3"
