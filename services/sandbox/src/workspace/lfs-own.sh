# The objects that a git-lfs of the session keeps. Only the session has them, so an export has the content in place of a new pointer, if the content is what the
# pointer names. A pointer of the base commit stays. A push reads only the .gitattributes at the top, so a file below another one stays a pointer too.
own=/workspace/.git/lfs/objects
if [ -d $own ]; then
  [ -e /tmp/lfs-clean ] || echo 'exec cat' >/tmp/lfs-clean
  cat >/tmp/lfs-export <<'END'
is_new() {
  local size oid sum directory
  size=$(stat -c %s "$2") && [ "$size" -le 160 ] || return 1
  oid=$(sed -n '2s/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' "$2")
  [ -n "$oid" ] || return 1
  object=$1/${oid%"${oid#??}"}/$(echo "$oid" | cut -c 3-4)/$oid
  [ -f "$object" ] && [ ! -L "$object" ] || return 1
  printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' "$oid" "$(stat -c %s "$object")" | cmp -s - "$2" || return 1
  git cat-file blob "$3:$2" 2>/dev/null | cmp -s - "$2" && return 1
  directory=$2
  while [ "${directory%/*}" != "$directory" ]; do
    directory=${directory%/*}
    [ ! -e "$directory/.gitattributes" ] || return 1
  done
  sum=$(sha256sum <"$object") && [ "${sum%% *}" = "$oid" ]
}
if is_new "$2" "$3" "$4"; then
  exec cat "$object"
fi
exec sh /tmp/lfs-clean "$1" "$3"
END
  export GIT_CONFIG_COUNT=${GIT_CONFIG_COUNT:-1}
  export GIT_CONFIG_KEY_0=filter.lfs.clean GIT_CONFIG_VALUE_0="sh /tmp/lfs-export $objects $own %f $1"
fi
