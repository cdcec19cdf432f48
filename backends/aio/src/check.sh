# Looks for a place for the guest, without a byte of input. In front of it the caller sets
#   n (nonce), h (SHA-256 of the guest), a (its architecture), d (working directory or empty),
#   r (1 if that must be there already), k (where the guest is kept, or empty).
# Answers are lines `GLOVEBOX-<nonce> word detail`: dir DIRECTORY, guest yes|no, home DIRECTORY, fail REASON.

check() {
  check_machine
  w=
  if [ -n "$k" ]; then
    usable "$k" || fail guestdir
    w=$k
  else
    for t in "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/glovebox}" "${HOME:+$HOME/.cache/glovebox}" \
      "/var/tmp/glovebox-$(id -u)" "/tmp/glovebox-$(id -u)"; do
      if usable "$t"; then w=$t; break; fi
    done
    [ -n "$w" ] || fail dir
  fi
  w=$(cd "$w" && pwd -P) || fail dir
  if [ -n "$d" ]; then
    [ -n "$r" ] || (umask 077; mkdir -p -- "$d") 2>/dev/null
    cd -- "$d" 2>/dev/null || fail cwd
  fi
  say home "${HOME-}"
  say dir "$w"
  if [ -f "$w/guest-$h" ] && [ -x "$w/guest-$h" ] && [ "$(sum "$w/guest-$h" 2>/dev/null)" = "$h" ]; then
    say guest yes
  else
    say guest no
  fi
}

# Gives an uploaded file ($1) its place ($2) if it has the sum and the size ($3).
install_guest() {
  find_tool
  if [ "$(wc -c <"$1" 2>/dev/null)" -ne "$3" ] 2>/dev/null || [ "$(sum "$1" 2>/dev/null)" != "$h" ]; then
    rm -f "$1"
    fail mismatch
  fi
  chmod 700 "$1" && mv -f "$1" "$2" || { rm -f "$1"; fail write; }
  say guest yes
}
