# What `git config` would write, without its two processes.
name_author() {
  printf '[user]\n\tname = %s\n\temail = %s\n' "$GIT_AUTHOR_NAME" "$GIT_AUTHOR_EMAIL" >>.git/config || exit 16
}

# The first commit of a repository that has none.
commit_nothing() { git commit --quiet --allow-empty -m 'Empty workspace' || exit 16; }
