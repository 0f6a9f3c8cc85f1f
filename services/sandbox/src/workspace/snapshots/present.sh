# present SNAPSHOT LIST: prints those files of a list, all of the snapshot, that are still there. Git only warns if it cannot remove a file.
present() {
  [ -s "$2" ] || return 0
  GIT_LITERAL_PATHSPECS=1 xargs -0 -a "$2" git ls-tree -rz "$1" -- |
    GIT_INDEX_FILE=/tmp/present git update-index --replace -z --index-info || return 1
  GIT_INDEX_FILE=/tmp/present git ls-files -z | sort -z >/tmp/listed
  GIT_INDEX_FILE=/tmp/present git diff-files --diff-filter=D --name-only -z | sort -z >/tmp/gone
  comm -z -23 /tmp/listed /tmp/gone
}

# name_unlike INDEX SNAPSHOT LIST COUNT: prints the first files that are not as in an index, and those of a list, all of the snapshot, that should be gone and are still
# there. Ends the script if there are any. Git's exit code does not say it: git only warns if it cannot remove a file, and fails at one that is as before and cannot be
# written.
name_unlike() {
  {
    GIT_INDEX_FILE=$1 git update-index -q --refresh >/dev/null
    GIT_INDEX_FILE=$1 git diff-files --name-only -z
    present "$2" "$3"
  } >/tmp/unlike 2>/tmp/unread || exit 1
  if [ -s /tmp/unlike ]; then
    head -z -n "$4" /tmp/unlike
    exit 24
  fi
  [ ! -s /tmp/unread ] || {
    cat /tmp/unread >&2
    exit 128
  }
}

# was_clean CODE: whether git wrote and removed everything, as far as it says. Ends the script if git failed for another reason than a single file.
was_clean() {
  cat /tmp/errors >&2
  case $1 in 0) [ ! -s /tmp/errors ] ;; 128) false ;; *) exit "$1" ;; esac
}
