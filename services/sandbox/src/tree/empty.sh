# Makes a repository with one empty commit in /workspace, and prints the commit.
cd /workspace || exit 1
git init --quiet --template= . || exit 16
name_author
commit_nothing
git rev-parse HEAD
