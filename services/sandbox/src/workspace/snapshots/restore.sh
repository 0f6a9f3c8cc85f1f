# $1: snapshot. The index tells what is there now and what of it need not be written.
must_be_known "$1"
cp $shadow/index /tmp/index || exit 1
GIT_INDEX_FILE=/tmp/index git read-tree --reset -u "$1"
