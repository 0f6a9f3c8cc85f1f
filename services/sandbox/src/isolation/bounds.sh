# Runs before the script of each helper.
# enter_group DESCRIPTOR: moves the shell into the control group whose list of tasks is open there.
enter_group() { echo 0 >&"$1" && eval "exec $1>&-" || exit 1; }
# lower_session NICE: for kernels that share the processors between sessions. They accept one change of all users in 100 ms; a change that
# is lost is made by the service.
lower_session() { { echo "$1" >/proc/self/autogroup; } 2>/dev/null; }
# limit_processes COUNT: the kernel counts those of this user in this sandbox only.
limit_processes() { ulimit -u "$1" 2>/dev/null; }
# watch_memory KIB: kills everything in the helper except bubblewrap when its processes use more memory of their own. For machines without
# a control group. Files in /tmp are not counted here: its size is a part of the limit.
watch_memory() {
  (
    while sleep 0.2 && kill -0 $$; do
      used=0
      for status in /proc/[0-9]*/status; do
        while read -r name kib _; do
          case $name in RssAnon: | RssShmem:) used=$((used + kib)) ;; esac
        done <"$status"
      done
      [ "$used" -le "$1" ] || kill -KILL -1
    done
  ) >/dev/null 2>&1 &
}
