# Fills the files of Git LFS in /workspace from the objects of the session whose files these are copies of, through the door, or from the objects of the mirror or of
# another session, and keeps their contents. Prints where the contents came from. $1: KiB that the files may use
# $2: host and path of the repository, or nothing: no door reads its objects  $3: URL of the repository  $4: `optional`, or nothing
# $5: directory for the contents  Each of these need not exist: $6: objects of the mirror  $7: objects that another session brings  $8: its lock
# $9: contents of the session whose files these are copies of
limit=$1 place=$2 origin=$3 contents=$5 mirror=$6 arrivals=$7 lock=$8 kept=$9
cd /workspace || exit 1
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound

server=$(lfs_server . "$place" "$origin")
[ -n "$place" ] || server=none

# The files of Git LFS that no commit has, as in a copy of the files of a session.
others() {
  local path value
  git ls-files -z --others --exclude-standard | git check-attr -z --stdin filter |
    while IFS= read -r -d '' path && IFS= read -r -d '' _ && IFS= read -r -d '' value; do
      [ "$value" != lfs ] || printf '%s\0' "$path"
    done
}

{ git ls-files -z -- ':(attr:filter=lfs)' && others; } >/tmp/lfs-paths || exit 16
# The files that are as the index has them. In a copy, a file may have another pointer.
git update-index -q --refresh >/dev/null 2>&1
git diff-files -z --name-only | sort -z >/tmp/lfs-changed
git ls-files -z | sort -z | comm -z -23 - /tmp/lfs-changed >/tmp/lfs-same
/opt/flotilla/init lfs "$place" "$contents" "$server" "$mirror" /tmp/lfs-report "$arrivals" "$lock" "$kept" ${4:+"$4"} \
  </tmp/lfs-paths >/tmp/lfs-filled || exit
sort -z /tmp/lfs-filled | comm -z -12 - /tmp/lfs-same >/tmp/lfs-indexed
if [ -s /tmp/lfs-indexed ]; then
  # The index keeps the pointers, and gets the times and the lengths of the files. So git takes them for unchanged without a filter.
  git -c filter.lfs.clean='git cat-file blob :0:%f' update-index -z --stdin </tmp/lfs-indexed || exit 16
  find -files0-from /tmp/lfs-indexed -maxdepth 0 -printf '%s %T@ %C@ %i %p\0' >"$contents/files" || exit 16
fi
[ ! -s /tmp/lfs-filled ] || cat /tmp/lfs-report
