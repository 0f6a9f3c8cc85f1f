#!/usr/bin/env bash
# Counts, runs a script inside the server, and has the server save its data, for which it forks.
set -euo pipefail

redis-cli -r 100 incr visits | tail -n 1
redis-cli eval 'local sum = 0; for n = 1, tonumber(redis.call("get", KEYS[1])) do sum = sum + n end; return sum' 1 visits
redis-cli bgsave
until redis-cli info persistence | grep -q 'rdb_bgsave_in_progress:0'; do sleep 0.1; done
redis-cli info persistence | grep -E 'rdb_(saves|last_bgsave_status)'
test -s /tmp/dump.rdb
