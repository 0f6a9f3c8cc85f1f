# Fills the files of Git LFS in /workspace through the door, or from the objects of the mirror or of another session, and keeps their contents in /run/sbx/lfs. Prints where
# the contents came from. $1: KiB that the files may use  $2: host and path of the repository  $3: URL of the repository
limit=$1 place=$2 origin=$3
cd /workspace || exit 1
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound

# The URL of a repository or of its Git LFS, without what can be left out.
plain() {
  local url=${1%/}
  url=${url%/info/lfs}
  echo "${url%.git}"
}

# The credential is for the server of the repository, and so is what the settings allow.
server=own
while IFS= read -r url; do
  case $(plain "$url") in
  "$(plain "$origin")" | "$(plain "https://$place")") ;;
  *) server=other ;;
  esac
done < <(git config --file .lfsconfig --get-regexp '^(lfs\.url|remote\..*\.lfsurl)$' 2>/dev/null | cut -d ' ' -f 2-)
git ls-files -z -- ':(attr:filter=lfs)' >/tmp/lfs-paths || exit 16
/opt/flotilla/init lfs "$place" /run/sbx/lfs "$server" /run/sbx/lfs-mirror /tmp/lfs-report /run/sbx/lfs-arrivals /run/sbx/lfs-turn </tmp/lfs-paths >/tmp/lfs-filled || exit
[ -s /tmp/lfs-filled ] || exit 0
# The index keeps the pointers, and gets the times and the lengths of the files. So git takes them for unchanged without a filter.
git -c filter.lfs.clean='git cat-file blob :0:%f' update-index -z --stdin </tmp/lfs-filled || exit 16
find -files0-from /tmp/lfs-filled -maxdepth 0 -printf '%s %T@ %C@ %i %p\0' >/run/sbx/lfs/files || exit 16
cat /tmp/lfs-report
