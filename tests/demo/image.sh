#!/usr/bin/env bash
# Writes the two layers of an image in which cargo builds: Debian's packages for a C compiler, as this machine has them, and the Rust toolchain of
# this machine. Usage: image.sh DIRECTORY; makes debian.tar and rust.tar there.
set -euo pipefail

out=$(readlink -f "$1")
readonly PACKAGES='bash coreutils gcc libc6-dev ca-certificates'

# Prints the names of the packages with everything that they depend on.
closure() {
    # shellcheck disable=SC2086 # a list of words
    apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances $PACKAGES | sed -n '/^[a-z0-9]/p' | sort -u
}

# Prints their files, without what only people read. Debian's packages still name `/bin/bash`, which is in `/usr`.
files() {
    # shellcheck disable=SC2046 # a list of words
    dpkg -L $(closure) |
        sed -E 's#^/(bin|sbin|lib|lib32|lib64|libx32)/#/usr/\1/#' |
        grep -E '^/(usr|etc)/' |
        grep -vE '^/usr/share/(doc|info|lintian|locale|man)(/|$)' |
        sort -u | while IFS= read -r path; do
        # What only root reads is left out.
        if [[ -r $path || -L $path ]]; then
            printf '%s\n' "${path#/}"
        fi
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in bin sbin lib lib64; do
    ln -s "usr/$name" "$work/$name"
done
files >"$work/files"
# What packages make when they are installed.
(
    cd /
    find etc/alternatives etc/ssl etc/ld.so.cache usr/lib/ssl -path etc/ssl/private -prune -o -print
    find usr/bin -lname '/etc/alternatives/*'
) >>"$work/files"
tar --create --file "$out/debian.tar" --no-recursion --directory / --verbatim-files-from --files-from "$work/files" \
    --directory "$work" bin sbin lib lib64

toolchain=$(rustc --print sysroot)
target=$(rustc -vV | sed -n 's/^host: //p')
cd "$toolchain"
tar --create --file "$out/rust.tar" --transform 's#^#usr/local/#' \
    bin/cargo bin/rustc lib/*.so* "lib/rustlib/$target"
