# Runs inside a sandbox only: started by the service through flotilla-init.
set -u
# The shell's builtins do what they can: the start of one program costs as much as all of them.
field() {
  local name value
  while read -r name value; do [ "$name" != "$1:" ] || echo "$value"; done </proc/self/status
}
# refused NAME COMMAND...: the command must fail.
refused() {
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then echo "$name=allowed"; else echo "$name=refused"; fi
}
works() {
  local name=$1
  shift
  if "$@" >/dev/null 2>&1; then echo "$name=works"; else echo "$name=fails"; fi
}
connect() { exec 9<>"/dev/tcp/127.0.0.1/$PROBE_PORT"; }
poke() { exec 9<>/proc/1/mem; }
readable() { : <"$1"; }
make() { : >"$1"; }

echo canary=yes
echo "uid=$EUID"
echo "capabilities=$(field CapEff)"
if dmesg 2>/dev/null | grep -q gVisor; then echo "kernel=of gVisor"; else echo "kernel=of the machine"; fi
refused host_file readable "$PROBE_FILE"
refused shadow readable /etc/shadow
# gVisor shows it, with the home directory that it gives to PID 1 and nothing else.
refused init_environment grep -qzv '^HOME=' /proc/1/environ
(refused init_memory poke)
refused system_write make /usr/flotilla-probe
(refused network connect)
refused user_namespace unshare --user --map-root-user true
refused mount mount -t tmpfs none /tmp
works workspace_write make /workspace/probe
works tmp_write make /tmp/probe
echo "processes=$(ulimit -u)"
echo "nice=$(nice)"
# What the service must see from outside, whatever the modes are: a closed directory, and a file without a name.
mkdir /workspace/closed && echo x >/workspace/closed/file && chmod 000 /workspace/closed
exec 8>/workspace/nameless && rm /workspace/nameless && printf '%065536d' 0 >&8
sleep 60 >/dev/null 2>&1 &
echo script=whole
