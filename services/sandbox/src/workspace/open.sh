# Fills /workspace. $1: source (bundle, directory, door, https, ssh)  $2: URL  $3: revision or nothing
# $4: URL to remember  $5: KiB that it may use  $6: the way to the server (https: the URL of the door to it, as a proxy; ssh: options with the checked address)
# $7: "yes" if the last commit holds uncommitted changes
# $8: the branch on which the files begin, or nothing
# For a repository that may have a mirror: $9: what its references name, at most  ${10}: packs at most
from=$1 url=$2 revision=$3 origin=$4 limit=$5 way=$6 uncommitted=$7 first_branch=$8
cd /workspace || exit 1

# A small pack may unpack to any size.
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound

# A bundle with a part of the history has a reference for each commit whose parents it lacks. Git does not clone one.
# Returns whether it is one, and then does what the clone would do.
take_part() {
  local id name branch='' has_head='' format=sha1
  git bundle list-heads "$url" >/tmp/heads 2>/tmp/errors || return 1
  sed -n 's|^\([0-9a-f]*\) refs/flotilla/shallow/.*|\1|p' /tmp/heads | sort -u >/tmp/shallow
  [ -s /tmp/shallow ] || return 1
  while read -r id name; do
    case $name in
    HEAD) has_head=yes ;;
    refs/heads/*) branch=${name#refs/heads/} && break ;;
    esac
  done </tmp/heads
  [ -n "$branch" ] || exit 13
  [ ${#id} = 40 ] || format=sha256
  git init --quiet --template= --object-format=$format . || exit 16
  git bundle unbundle "$url" >/dev/null 2>/tmp/errors || {
    cat /tmp/errors >&2
    exit 13
  }
  cp /tmp/shallow .git/shallow
  git config remote.origin.url "$url" && git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || exit 16
  git update-ref "refs/remotes/origin/$branch" "$id" 2>/tmp/errors &&
    { [ -z "$has_head" ] || git symbolic-ref refs/remotes/origin/HEAD "refs/remotes/origin/$branch"; } && git update-ref "refs/heads/$branch" "$id" && git symbolic-ref HEAD "refs/heads/$branch" || {
    cat /tmp/errors >&2
    exit 13
  }
  git config "branch.$branch.remote" origin && git config "branch.$branch.merge" "refs/heads/$branch" || exit 16
}

fetch() {
  local refused reference=()
  ! has_mirror || reference=(--reference $mirror)
  reach
  [ "$from" != bundle ] || ! take_part || return 0
  git "${route[@]}" clone --quiet --no-checkout --no-recurse-submodules --template= "${reference[@]}" -- "$url" . \
    2>/tmp/errors && return
  cat /tmp/errors >&2
  refused=$(cat /tmp/errors)
  [ "$from" != bundle ] || exit 13
  if [ "$from" = door ]; then
    # The broker puts the code of a refusal into brackets.
    [[ $refused =~ remote:\ .*\([a-z_]+\) ]] || suspect_mirror
    exit 17
  fi
  case $refused in
  *"could not read Username"* | *"could not read Password"* | *"terminal prompts disabled"* | *"Authentication failed"* | *"Permission denied (publickey"*) exit 11 ;;
  *"not found"* | *"does not exist"* | *"does not appear to be a git repository"* | *"not a git repository"*) exit 10 ;;
  *)
    suspect_mirror
    exit 15
    ;;
  esac
}

commit_of() { git rev-parse --quiet --verify "$1^{commit}" 2>/dev/null; }

branch() {
  git checkout --quiet --force --track -B "$1" "refs/remotes/origin/$1" || exit 16
}

choose() {
  local commit name
  name=${revision#refs/heads/}
  if [ -n "$first_branch" ] && commit_of "refs/remotes/origin/$first_branch" >/dev/null; then
    branch "$first_branch"
  elif [ -z "$revision" ]; then
    commit_of HEAD >/dev/null && { git checkout --quiet --force || exit 16; } && return
    for name in main master $(git for-each-ref --count=1 --format='%(refname:lstrip=3)' refs/remotes/origin); do
      commit_of "refs/remotes/origin/$name" >/dev/null && branch "$name" && return
    done
    # A repository without a commit.
    commit_nothing
    ours=yes
  elif commit_of "refs/remotes/origin/$name" >/dev/null; then
    branch "$name"
  else
    commit=$(commit_of "refs/tags/${revision#refs/tags/}") || {
      [[ $revision =~ ^[0-9a-f]{7,64}$ ]] || exit 12
      commit=$(commit_of "$revision") || {
        # Servers send a commit outside all branches only by its full name.
        git "${route[@]}" fetch --quiet origin "$revision" 2>/dev/null || exit 12
        commit=$(commit_of FETCH_HEAD) || exit 12
      }
    }
    git checkout --quiet --force --detach "$commit" || exit 16
  fi
}

# The files of a snapshot keep their bytes; the line-end settings of the repository do not apply.
keep_bytes() {
  mkdir -p .git/info
  echo '* -text -ident !eol !crlf !filter !working-tree-encoding' >.git/info/attributes
}

uncommit() {
  rm -f .git/info/attributes
  # The only branch of the bundle is the one that the files are from.
  local name
  name=$(git for-each-ref --count=1 --format='%(refname:lstrip=3)' refs/remotes/origin)
  # Bundles of earlier versions have another name in place of it.
  [ "$name" != flotilla ] || name=main
  git checkout --quiet -B "${name:-main}" && git reset --quiet --mixed 'HEAD^' || exit 16
  # The server has no such branch, only the bundle.
  git branch --quiet --unset-upstream 2>/dev/null
  # An empty first commit that this script made.
  [ -n "$(git ls-tree HEAD)" ] || [ "$(git show --no-patch --format='%ae %P' HEAD)" != "$GIT_AUTHOR_EMAIL " ] || ours=yes
}

ours=no
fetch
if [ $# -gt 8 ]; then
  settle "${10}"
  report "$9" >/tmp/report &
  reporting=$!
fi
name_author
[ "$uncommitted" != yes ] || keep_bytes
choose
[ "$uncommitted" != yes ] || uncommit
[ -z "$first_branch" ] || git checkout --quiet -B "$first_branch" || exit 22
# The checkout may have needed the source until now.
[ -z "$origin" ] || git remote set-url origin "$origin"
[ $# -le 8 ] || { wait $reporting && cat /tmp/report; }
# Whether there are files of Git LFS.
lfs=no
! read -r _ < <(git ls-files -- ':(attr:filter=lfs)') || lfs=yes
# Whether there may be files of configuration. They restrict the session, so an error is no answer.
configuration=no
places=$(git ls-tree --name-only HEAD -- "${configuration_places[@]}") || exit 16
[ -z "$places" ] || configuration=yes
echo "$ours $lfs $configuration $(git rev-parse HEAD)"
