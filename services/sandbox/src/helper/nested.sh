# enter_nested DIRECTORY: makes git take the files of a repository inside the work tree for files of the work tree. Git enters one only if the index has a file there:
# the first readable one, which this prints for `git update-index --index-info`.
enter_nested() {
  local name
  cd "./$1" || return 0
  while IFS= read -r -d '' name; do
    case $name in */) continue ;; esac
    [ -f "$name" ] && [ ! -L "$name" ] && [ -r "$name" ] || continue
    printf '100644 %s\t%s\0' "$(git hash-object -w --stdin </dev/null)" "$1$name"
    break
  done < <(GIT_WORK_TREE=$PWD GIT_INDEX_FILE=/tmp/none git ls-files -z --others --exclude-standard)
  cd /workspace || exit 1
}
