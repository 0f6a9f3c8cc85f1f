# Snapshots are trees in a separate git directory, /run/sbx/snapshots/git, that no tenant's program sees. A snapshot exists
# while refs/snapshots has it; the age of that file is its age. The repository's own objects are read from `base`, a
# copy from before the first program of the tenant ran.
shadow=/run/sbx/snapshots/git
export GIT_DIR=$shadow GIT_WORK_TREE=/workspace GIT_INDEX_FILE=$shadow/index
cd /workspace || exit 1
require_snapshot() { [ -e "$shadow/refs/snapshots/$1" ] || exit 17; }
