# Carries connections of git from 127.0.0.1:3129 to the door of the session, until the script ends. Exits with 18 if there is no door.
open_door() {
  local ready
  exec {door}< <(exec /opt/flotilla/init forward 2>/dev/null)
  read -r -t 10 -u "$door" ready && [ "$ready" = ready ] || exit 18
}
