# Kills everything in the helper but bubblewrap itself when what `used` prints, in KiB, is beyond $limit. It ends with the script:
# bubblewrap waits for whatever still runs, and does not always hear that its parent died.
bound() {
  (
    while sleep 1 && kill -0 $$; do
      now=$(used)
      [ "${now:-0}" -le "$limit" ] || kill -KILL -1
    done
  ) >/dev/null 2>&1 &
}
