#!/usr/bin/env bash
# Shows a page in a browser, and prints what the scripts of the page made of it.
set -euo pipefail

python3 -m http.server --bind 127.0.0.1 8000 >/tmp/server.log 2>&1 &
trap 'kill $!' EXIT
until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do kill -0 $!; done
browse() {
    chromium --headless --no-sandbox --disable-gpu --disable-background-networking --virtual-time-budget=5000 "$@" \
        http://127.0.0.1:8000/page.html 2>/tmp/chromium.log || { cat /tmp/chromium.log >&2; exit 1; }
}
browse --dump-dom
browse --screenshot=/tmp/page.png
# The signature, and the width and height of a picture.
od -An -tx1 -N4 /tmp/page.png
