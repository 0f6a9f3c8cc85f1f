# $1: KiB that the workspace may use. Git runs without a repository, so it reads neither the tenant's configuration nor the
# index, and it refuses paths outside, below `.git` and behind links.
limit=$1
cd /workspace || exit 1
used() { du -sk /workspace 2>/dev/null | cut -f1; }
bound
apply() { GIT_DIR=/tmp/none git apply --whitespace=nowarn "$@" /run/sbx/scratch/patch; }
apply --check 2>/tmp/errors || {
  code=$?
  cat /tmp/errors >&2
  # Above 128, git was killed; otherwise its output explains the error in the patch.
  [ $code -le 128 ] || exit $code
  exit 20
}
apply 2>/tmp/errors || {
  code=$?
  cat /tmp/errors >&2
  ! grep -q 'No space left' /tmp/errors || exit 18
  [ $code -le 128 ] || exit $code
  exit 21
}
# Git does not report a file whose directory it could not make.
missing=0
while IFS= read -r -d '' record; do
  name=${record#*$'\t'*$'\t'}
  [ -e "$name" ] || [ -L "$name" ] || missing=$((missing + 1))
done < <(apply --numstat -z)
[ $missing = "$(apply --summary | grep -c '^ delete ')" ] || exit 21
