# Carries connections of git from 127.0.0.1:3129 to the door that the helper sees, until the script ends: that of the session, or that to the server of a public
# repository. Exits with 18 if it cannot.
open_door() {
  local ready
  exec {door}< <(exec /opt/flotilla/init forward 2>/dev/null)
  read -r -t 10 -u "$door" ready && [ "$ready" = ready ] || exit 18
}
