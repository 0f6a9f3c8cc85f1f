# present SNAPSHOT LIST: prints those files of a list, all of the snapshot, that are still there. Git only warns if it cannot remove a file.
present() {
  [ -s "$2" ] || return 0
  GIT_LITERAL_PATHSPECS=1 xargs -0 -a "$2" git ls-tree -rz "$1" -- |
    GIT_INDEX_FILE=/tmp/present git update-index --replace -z --index-info || return 1
  GIT_INDEX_FILE=/tmp/present git ls-files -z | sort -z >/tmp/listed
  GIT_INDEX_FILE=/tmp/present git diff-files --diff-filter=D --name-only -z | sort -z >/tmp/gone
  comm -z -23 /tmp/listed /tmp/gone
}
