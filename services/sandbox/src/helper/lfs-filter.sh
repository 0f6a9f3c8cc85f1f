# Git LFS. A file whose SHA-256 names a file of $objects is an object that the session was given. Git reads it as its pointer, and writes the object in place of
# the pointer. All other files keep their bytes, so nothing that an agent has written depends on an object.
objects=/run/sbx/snapshots/lfs
if [ -d $objects ]; then
  cat >/tmp/lfs-clean <<'END'
sum=$(sha256sum <"$2") && sum=${sum%% *} && [ -e "$1/$sum" ] || exec cat
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' "$sum" "$(stat -c %s "$1/$sum")"
END
  cat >/tmp/lfs-smudge <<'END'
head -c 160 >"/tmp/lfs-head.$$"
oid=$(sed -n '2s/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' "/tmp/lfs-head.$$")
if [ -n "$oid" ] && [ -e "$1/$oid" ] &&
  printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' "$oid" "$(stat -c %s "$1/$oid")" | cmp -s - "/tmp/lfs-head.$$"; then
  cat "$1/$oid"
else
  cat "/tmp/lfs-head.$$" -
fi
rm -f "/tmp/lfs-head.$$"
END
  export GIT_CONFIG_COUNT=2
  export GIT_CONFIG_KEY_0=filter.lfs.clean GIT_CONFIG_VALUE_0="sh /tmp/lfs-clean $objects %f"
  export GIT_CONFIG_KEY_1=filter.lfs.smudge GIT_CONFIG_VALUE_1="sh /tmp/lfs-smudge $objects"
fi

# Removes length, times and inode before each path.
only_paths() { sed -z 's/^[^ ]* [^ ]* [^ ]* [^ ]* //'; }

# Lists the files that are as the clone filled them, in /tmp/lfs-unchanged. Returns whether there are any.
list_unchanged() {
  [ -s $objects/files ] || return 1
  only_paths <$objects/files >/tmp/lfs-filled
  find -files0-from /tmp/lfs-filled -maxdepth 0 -printf '%s %T@ %C@ %i %p\0' 2>/dev/null | sort -z |
    comm -z -12 - <(sort -z $objects/files) | only_paths | sort -z >/tmp/lfs-unchanged
  [ -s /tmp/lfs-unchanged ]
}

# Passes a list of files on, without those that list_unchanged has found.
without_unchanged() {
  if [ -s /tmp/lfs-unchanged ]; then
    sort -z | comm -z -23 - /tmp/lfs-unchanged
  else
    cat
  fi
}
