#!/usr/bin/env bash
# Writes a layer of an image: Debian's packages with everything that they depend on, as this machine has them.
# Usage: packages.sh PACKAGE...; prints an archive.
set -euo pipefail

# Prints the names of the packages with everything that they depend on. Of two packages that can satisfy a dependency, the machine may have one.
closure() {
    apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$@" | sed -n '/^[a-z0-9]/p' | sort -u |
        # It fails if it does not know one of them, and prints the others.
        { xargs dpkg-query --show --showformat '${db:Status-Abbrev}${binary:Package}\n' 2>/dev/null || true; } |
        sed -n 's/^ii //p'
}

# Prints their files, without what only people read. Debian's packages still name `/bin/bash`, which is in `/usr`.
files() {
    dpkg -L "${packages[@]}" |
        sed -E 's#^/(bin|sbin|lib|lib32|lib64|libx32)/#/usr/\1/#' |
        grep -E '^/(usr|etc|var)/' |
        grep -vE '^/usr/share/(doc|info|lintian|locale|man)(/|$)' |
        sort -u | while IFS= read -r path; do
        # What only root reads is left out.
        if [[ -r $path || -L $path ]]; then
            printf '%s\n' "${path#/}"
        fi
    done
}

for name in "$@"; do
    dpkg-query --show "$name" >/dev/null
done
readarray -t packages < <(closure "$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in bin sbin lib lib64; do
    ln -s "usr/$name" "$work/$name"
done
# The database of dpkg knows these packages alone.
mkdir -p "$work/var/lib/dpkg"
dpkg-query --status "${packages[@]}" >"$work/var/lib/dpkg/status"
files >"$work/files"
# What packages make when they are installed.
(
    cd /
    find etc/alternatives etc/ssl etc/ld.so.cache usr/lib/ssl -path etc/ssl/private -prune -o -print
    find usr/bin -lname '/etc/alternatives/*'
    for name in "${packages[@]}"; do
        compgen -G "var/lib/dpkg/info/$name.list" || compgen -G "var/lib/dpkg/info/$name:*.list"
    done
) >>"$work/files"
tar --create --no-recursion --directory / --verbatim-files-from --files-from "$work/files" \
    --directory "$work" bin sbin lib lib64 var/lib/dpkg/status
