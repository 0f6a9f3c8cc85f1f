#!/usr/bin/env bash
# Checks greet.sh; exits 1 when a check fails.
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
source ./greet.sh
failed=0

check() {
  if [[ $2 == "$3" ]]; then
    echo "ok    $1"
  else
    printf 'FAIL  %s: expected %q, got %q\n' "$1" "${2%x}" "${3%x}"
    failed=1
  fi
}

# The x keeps the trailing newline, which $(...) would strip.
check "greets by name" $'Hello, Ada!\nx' "$(greet Ada; printf x)"
check "greets the world without a name" $'Hello, world!\nx' "$(greet; printf x)"
check "keeps names with spaces whole" $'Hello, Ada Lovelace!\nx' "$(greet 'Ada Lovelace'; printf x)"
exit "$failed"
