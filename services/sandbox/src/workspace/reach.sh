# How git reaches the source. $from: its kind  $way: the way to its server

# The options with which git reaches the server of an https URL, in this way alone.
route=()

# Lets git use the one way to the source.
reach() {
  case $from in
  directory) export GIT_ALLOW_PROTOCOL=file GIT_CONFIG_GLOBAL=/etc/git-reader.conf ;;
  bundle) export GIT_ALLOW_PROTOCOL=file ;;
  door)
    export GIT_ALLOW_PROTOCOL=http
    open_door
    ;;
  https)
    export GIT_ALLOW_PROTOCOL=https
    route=(-c "http.proxy=$way")
    open_door
    [ ! -e /run/sbx/git-ca.pem ] || export GIT_SSL_CAINFO=/run/sbx/git-ca.pem
    ;;
  # The address was checked; ssh must not look the name up again.
  ssh) export GIT_ALLOW_PROTOCOL=ssh GIT_SSH_COMMAND="ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new $way" ;;
  esac
}
