# Runs before every script that uses git. Git reads no configuration of the machine or the tenant.
set -u
umask 022
export HOME=/home/agent LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false SSH_ASKPASS=/bin/false
export GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0
export GIT_AUTHOR_NAME='Flotilla Agent' GIT_AUTHOR_EMAIL=agent@flotilla.invalid
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
git() {
  command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c submodule.recurse=false -c credential.helper= \
    -c http.followRedirects=false -c gc.auto=0 -c maintenance.auto=false -c advice.detachedHead=false \
    -c init.defaultBranch=main "$@"
}
