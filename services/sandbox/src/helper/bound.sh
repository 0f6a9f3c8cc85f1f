# Kills everything in the helper except bubblewrap when the KiB that `used` prints exceed $limit. The loop ends with the
# script: bubblewrap waits for every process, and does not always notice that its parent died.
bound() {
  (
    while sleep 1 && kill -0 $$; do
      now=$(used)
      [ "${now:-0}" -le "$limit" ] || kill -KILL -1
    done
  ) >/dev/null 2>&1 &
}
