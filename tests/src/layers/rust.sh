#!/usr/bin/env bash
# Writes a layer of an image: a part of this machine's Rust toolchain, below /usr/local. Usage: rust.sh compiler|library; prints an archive.
set -euo pipefail

target=$(rustc -vV | sed -n 's/^host: //p')
cd "$(rustc --print sysroot)"
case $1 in
compiler) paths=(bin/cargo bin/rustc lib/*.so*) ;;
library) paths=("lib/rustlib/$target") ;;
esac
tar --create --transform 's#^#usr/local/#' "${paths[@]}"
