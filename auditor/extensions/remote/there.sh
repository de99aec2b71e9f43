# What runs on the other machine, by any POSIX shell, behind lines that set `mark`, `python`, `name`,
# `wanted` and the function `audited`. Standard input is the length of an archive, the archive, and
# then nothing until it ends, which asks the audit to end.
umask 077
say() { printf '\n%s %s\n' "$mark" "$*"; } 2>/dev/null
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
if [ -n "$python" ]; then
  set -- "$python" -m auditor
else
  set -- "$(command -v audit || "${SHELL:-sh}" -lc 'command -v audit' </dev/null 2>/dev/null | tail -n 1)"
fi
version=$("$@" --version </dev/null 2>/dev/null) || version=
[ -n "$version" ] || { say lacks; exit; }
home=$(mktemp -d "${TMPDIR:-/tmp}/audit-XXXXXX") && home=$(cd "$home" && pwd -P) && mkdir "$home/tmp" || { say full; exit; }
export TMPDIR="$home/tmp"
run=
ended() {
  [ -z "$run" ] || kill -KILL -- "-$run" "$run"
  rm -rf "$home" || { sleep 1; rm -rf "$home"; }
} 2>/dev/null
trap ended EXIT
trap 'exit 1' HUP INT PIPE TERM
exec 3<&0
say ready "${version##* }" "$home"
read -r size <&3 || exit
head -c "$size" <&3 | tar -xf - -C "$home" || exit
here=$home/$name
cd "$here" || exit
session=$(command -v setsid)
audited "$@" </dev/null >/dev/null 3<&- &
run=$!
{
  cat <&3
  kill -TERM "$run"
  left=60
  while kill -0 "$run" && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
  kill -KILL -- "-$run" "$run"
} >/dev/null 2>&1 &
watch=$!
wait "$run"
code=$?
kill "$watch"
say ended "$code"
[ ! -e "$home/$wanted" ] || tar -cf - -C "$home" "$wanted"
