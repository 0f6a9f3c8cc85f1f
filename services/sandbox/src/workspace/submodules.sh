# Clones the submodules of /workspace that the door of the session leads to, and fills their files of Git LFS. Keeps the contents.
# $1: KiB that all files may use  $2: submodules at most  $3: levels  $4: seconds after which no more contents are brought
# $5: directory for the contents
limit=$1 left=$2 lfs_seconds=$4 contents=$5
cd /workspace || exit 1
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound
open_door
# The door alone: every other URL is refused before git asks for it.
export GIT_ALLOW_PROTOCOL=http GIT_CONFIG_GLOBAL=/run/egress/gitconfig GIT_TEMPLATE_DIR=

# The host and the path of a repository at the door.
place_of() {
  local url=$1
  case $url in
  https://*) url=${url#https://} ;;
  ssh://git@*) url=${url#ssh://git@} ;;
  git@*:*)
    url=${url#git@}
    url=${url%%:*}/${url#*:}
    ;;
  *) return 1 ;;
  esac
  url=${url%/}
  echo "${url%.git}.git"
}

# Files that cannot be filled stay pointers, and the model is told so.
fill() { # $1: a submodule
  local url place server name
  # The rest of the time is for the clones: contents are less than files.
  [ "$SECONDS" -lt "$lfs_seconds" ] || return 0
  git -C "$1" ls-files -z -- ':(attr:filter=lfs)' >/tmp/lfs-names
  [ -s /tmp/lfs-names ] || return 0
  url=$(git -C "$1" config remote.origin.url)
  place=$(place_of "$url") || return 0
  server=$(lfs_server "$1" "$place" "$url")
  while IFS= read -r -d '' name; do printf '%s/%s\0' "$1" "$name"; done </tmp/lfs-names >/tmp/lfs-paths
  timeout "$((lfs_seconds - SECONDS + 1))" /opt/flotilla/init lfs "$place" "$contents" "$server" /run/sbx/none /tmp/lfs-report /run/sbx/none /run/sbx/none "$contents" optional \
    </tmp/lfs-paths >/tmp/lfs-filled || true
  [ -s /tmp/lfs-filled ] || return 0
  while IFS= read -r -d '' name; do printf '%s\0' "${name#"$1/"}"; done </tmp/lfs-filled >/tmp/lfs-names
  # As in the repository itself: git takes the files for unchanged.
  git -C "$1" -c filter.lfs.clean='git cat-file blob :0:%f' update-index -z --stdin </tmp/lfs-names
}

clone_below() { # $1: a repository  $2: levels
  local path directory
  [ -f "$1/.gitmodules" ] || return 0
  while IFS= read -r -d '' path; do
    [ "$left" -gt 0 ] || return 0
    left=$((left - 1))
    if git -C "$1" submodule --quiet update --init --checkout -- "$path" >/dev/null 2>&1 </dev/null; then
      directory=$1/$path
      fill "${directory#./}"
      [ "$2" -le 1 ] || clone_below "$1/$path" $(($2 - 1))
    else
      # It stays empty, like one outside the prefixes.
      git -C "$1" submodule --quiet deinit --force -- "$path" >/dev/null 2>&1 </dev/null
    fi
  done < <(git -C "$1" ls-files --stage -z | grep -z '^160000 ' | cut -z -f 2-)
}
clone_below . "$3"
