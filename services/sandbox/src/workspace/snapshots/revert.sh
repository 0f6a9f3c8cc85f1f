# $1: snapshot of the current files  $2: files to be named. Each file of /run/sbx/scratch is named after a snapshot and lists the paths to restore
# from it. Git moves between two trees of only those files, current and restored, and follows no link. Prints those that it could not write or remove, each with
# a NUL.
export GIT_LITERAL_PATHSPECS=1 GIT_OBJECT_DIRECTORY=/tmp/objects GIT_ALTERNATE_OBJECT_DIRECTORIES=$shadow/objects
mkdir $GIT_OBJECT_DIRECTORY
files() { xargs -0 -a "$2" git ls-tree -z "$1" -- | LC_ALL=C grep -zav '^[0-9]* tree '; }
for paths in /run/sbx/scratch/*; do
  wanted=${paths##*/}
  require_snapshot "$wanted"
  files "$wanted" "$paths" >>/tmp/wanted
  files "$1" "$paths" >>/tmp/now
done
GIT_INDEX_FILE=/tmp/index git update-index --replace -z --index-info </tmp/wanted || exit 1
tree=$(GIT_INDEX_FILE=/tmp/index git write-tree) || exit 1
GIT_INDEX_FILE=/tmp/index-now git update-index --replace -z --index-info </tmp/now || exit 1
GIT_INDEX_FILE=/tmp/index-now git ls-files -z | sort -z >/tmp/now-names
GIT_INDEX_FILE=/tmp/index-now git read-tree --reset -u "$tree" 2>/tmp/errors
code=$?
# A program may change files meanwhile, so git's own words decide whether to look.
was_clean $code && exit 0
GIT_INDEX_FILE=/tmp/index git ls-files -z | sort -z | comm -z -13 - /tmp/now-names >/tmp/removed
name_unlike /tmp/index "$1" /tmp/removed "$2"
exit $code
