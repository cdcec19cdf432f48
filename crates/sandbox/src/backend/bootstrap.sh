# Brings the guest up behind any POSIX shell whose standard input and output are the link.
#
# Sent as one compound command, so that a shell that reads ahead has read all of it and nothing
# else: the next bytes are sent only after an answer. In front of it the sender sets
#   n (nonce), h (SHA-256 of the guest), z (its size), a (its architecture), d (directory or empty), m (not empty: make it),
#   k (where the guest is kept, or empty), s (words of the guest's command line, of letters that need no quotes).
# Answers are lines `GLOVEBOX-<nonce> word detail`: fail | need | start.
# After `need` exactly z bytes follow; after `start` the guest speaks.

[ ! -t 0 ] || fail tty
check_machine
command -v head >/dev/null 2>&1 || fail head

keep=1
w=$k
if [ -n "$k" ]; then :
elif [ -n "${XDG_CACHE_HOME-}" ]; then w=$XDG_CACHE_HOME/glovebox
elif [ -n "${HOME-}" ]; then w=$HOME/.cache/glovebox; fi
if ! usable "$w"; then
  [ -z "$k" ] || fail guestdir
  keep=
  w=
  for t in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
    if (umask 077; mkdir "$t/glovebox.$n") 2>/dev/null; then
      if usable "$t/glovebox.$n"; then w=$t/glovebox.$n; break; fi
      rmdir "$t/glovebox.$n" 2>/dev/null
    fi
  done
  [ -n "$w" ] || fail dir
fi

g=$w/guest-$h
if [ ! -f "$g" ] || [ "$(sum "$g" 2>/dev/null)" != "$h" ]; then
  say need
  (umask 077; head -c "$z" >"$g.$n") || { rm -f "$g.$n"; fail write; }
  if [ "$(sum "$g.$n")" != "$h" ]; then rm -f "$g.$n"; fail mismatch; fi
  chmod 700 "$g.$n" && mv -f "$g.$n" "$g" || { rm -f "$g.$n"; fail write; }
fi
if [ -n "$d" ]; then
  [ -z "$m" ] || mkdir -p -- "$d" 2>/dev/null || fail cwd
  cd -- "$d" 2>/dev/null || fail cwd
fi
if [ -z "$keep" ] && exec 3<"$g" && [ -x /proc/self/fd/3 ]; then
  # Nothing is left behind: the guest runs from a file that has no name any more.
  rm -f "$g"
  rmdir "$w" 2>/dev/null
  g=/proc/self/fd/3
fi
say start
exec "$g" $s
