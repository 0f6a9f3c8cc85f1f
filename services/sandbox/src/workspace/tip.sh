# Prints the commit that a server names now, as `choose` of open.sh would find it; nothing if only a clone can tell.
# $1: source (directory, door, https, ssh)  $2: URL  $3: revision or nothing  $4: the way to the server  $5: the branch on which the files begin, or nothing
from=$1 url=$2 revision=$3 way=$4 first_branch=$5
reach
name=${revision#refs/heads/} tag=${revision#refs/tags/}
heads=$(git "${route[@]}" ls-remote --quiet -- "$url" HEAD ${first_branch:+"refs/heads/$first_branch"} ${name:+"refs/heads/$name"} \
  ${tag:+"refs/tags/$tag" "refs/tags/$tag^{}"} 2>/dev/null) || exit 0
# ls-remote also finds references whose names only end so.
commit_of() {
  local id reference
  while read -r id reference; do
    [ "$reference" != "$1" ] || { echo "$id" && exit; }
  done <<<"$heads"
}
[ -z "$first_branch" ] || commit_of "refs/heads/$first_branch"
if [ -z "$revision" ]; then
  commit_of HEAD
else
  commit_of "refs/heads/$name"
  commit_of "refs/tags/$tag^{}"
  commit_of "refs/tags/$tag"
fi
