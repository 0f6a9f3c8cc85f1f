# The URL of a repository or of its Git LFS, without what can be left out.
plain() {
  local url=${1%/}
  url=${url%/info/lfs}
  echo "${url%.git}"
}

# Prints which server has the objects of Git LFS of a repository: its own, or another one that it names. The credential is for its own server, and so is what the
# settings allow. $1: directory  $2: host and path of the repository  $3: its URL
lfs_server() {
  local url server=own
  while IFS= read -r url; do
    case $(plain "$url") in
    "$(plain "$3")" | "$(plain "https://$2")") ;;
    *) server=other ;;
    esac
  done < <(git config --file "$1/.lfsconfig" --get-regexp '^(lfs\.url|remote\..*\.lfsurl)$' 2>/dev/null | cut -d ' ' -f 2-)
  echo $server
}
