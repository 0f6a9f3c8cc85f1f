#!/usr/bin/env bash
# The demonstration, checked: a private stack repairs the sample repository by its scripted model, and everything that
# Flotilla says about it afterwards (branch, diff, messages, events) agrees. Usage: tests/demo.sh PATH_OF_FLOTILLA
set -euo pipefail

flotilla=$(readlink -f "$1")
sample=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/sample")
work=$(mktemp -d "${TMPDIR:-/tmp}/flotilla-demo.XXXXXX")
stack=''

fail() {
    printf 'demo: FAILED: %s\n' "$*" >&2
    if [[ -s $work/up.err ]]; then
        printf -- '--- the stack said:\n' >&2
        tail -n 30 "$work/up.err" >&2
    fi
    for log in "$work"/data/logs/{gateway,worker-1,sandbox}.log; do
        [[ -s $log ]] && printf -- '--- the end of %s:\n' "$(basename "$log")" >&2 && tail -n 15 "$log" >&2
    done
    exit 1
}

check() {
    local what=$1
    shift
    "$@" || fail "$what"
    printf 'demo: ok: %s\n' "$what" >&2
}

clean_up() {
    if [[ -n $stack ]] && kill -TERM "$stack" 2>/dev/null; then
        wait "$stack" || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The stack belongs to this run alone: nothing of the user's settings or of another stack takes part.
unset FLOTILLA_URL FLOTILLA_API_KEY FLOTILLA_CONFIG FLOTILLA_GATEWAY_LISTEN ANTHROPIC_API_KEY OPENAI_API_KEY GEMINI_API_KEY
export FLOTILLA_DATA=$work/data XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
# Postgres runs as another user when this runs as root.
chmod 755 "$work"
cd "$work"

# Should this script be killed, the stack ends as well.
setpriv --pdeathsig TERM -- "$flotilla" up >up.out 2>up.err &
stack=$!
for ((i = 0; i < 900; i++)); do
    [[ -s data/ready.json ]] && break
    kill -0 "$stack" 2>/dev/null || fail "the stack ended before it was ready"
    sleep 0.1
done
check "the stack is up" test -s data/ready.json

cp -r "$sample" sample
git -C sample init --quiet --initial-branch=main
git -C sample add .
git -C sample -c user.name=Demo -c user.email=demo@localhost commit --quiet -m 'Greet people'
if sample/test.sh >/dev/null; then
    fail "the sample's tests pass before the repair"
fi

setpriv --pdeathsig TERM -- "$flotilla" run --repo sample --timeout 180 'fix the failing tests' || fail "flotilla run ended with $?"
printf 'demo: ok: flotilla run ended with 0\n' >&2

"$flotilla" ls --json >sessions.jsonl
id=$(sed -n '1s/.*"id":"\(ses_[^"]*\)".*/\1/p' sessions.jsonl)
check "there is exactly one session" test "$(wc -l <sessions.jsonl)" -eq 1
elsewhere() { (cd / && env -u FLOTILLA_DATA "$flotilla" "$@"); }
elsewhere ls --json >elsewhere.jsonl
check "commands in other directories find the stack by its context" cmp sessions.jsonl elsewhere.jsonl
check "the session has a title" grep -q '"title":"fix the failing tests"' sessions.jsonl
check "the session is idle and done" grep -q '"state":"idle".*"last_outcome":"done"' sessions.jsonl

"$flotilla" diff "$id" >result.diff
# shellcheck disable=SC2016 # the repaired line, as it is
check "the diff shows the repaired line" grep -qF '+  printf '\''Hello, %s!\n'\'' "${1:-world}"' result.diff

"$flotilla" checkout "$id" --repo sample --branch repaired
check "the repository's own files are untouched" test -z "$(git -C sample status --porcelain)"
git -C sample worktree add --quiet ../result repaired
check "the tests pass on the branch" result/test.sh >&2

"$flotilla" messages --json "$id" >messages.jsonl
# Keys inside of texts are escaped (\"status\"), so these patterns only meet real ones.
tools() { grep -o '"callID": *"[^"]*"' "$1" | tr -d ' ' | sort -u; }
completed=$(grep -oE '"status": *"completed"' messages.jsonl | wc -l)
check "the messages hold tool calls" test "$completed" -gt 0
check "each of them is completed" test "$completed" -eq "$(tools messages.jsonl | wc -l)"
check "none is pending, running or failed" test -z "$(grep -oE '"status": *"(pending|running|error)"' messages.jsonl)"

"$flotilla" watch --json "$id" | grep '^{"seq":' >events.jsonl
# shellcheck disable=SC2016 # the fields of awk
check "the events are numbered 1, 2, 3, … without a gap" awk -F '[:,]' '$2 != NR { exit 1 } END { exit NR == 0 }' events.jsonl
check "events and messages name the same tool calls" test "$(tools messages.jsonl)" = "$(tools events.jsonl)"
last_idle=$(grep '"type":"session.idle"' events.jsonl | tail -n 1)
check "the last turn's outcome is done" grep -qE '"outcome": *"done"' <<<"$last_idle"

kill -TERM "$stack"
wait "$stack" || fail "flotilla up ended with $? when it was asked to stop"
stack=''
check "nothing is left to be found" test ! -e data/ready.json
check "its context is gone" test -z "$(elsewhere context ls --json)"
printf 'demo: everything holds\n' >&2
