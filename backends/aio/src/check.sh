# Looks for a place for the guest, without a byte of input. In front of it the caller sets
#   n (nonce), h (SHA-256 of the guest), a (its architecture), d (working directory or empty),
#   r (1 if that must be there already), k (where the guest is kept, or empty),
#   o (owner of a working directory that is a sandbox's own, or empty), i (which life of the sandbox wants it).
# Answers are lines `GLOVEBOX-<nonce> word detail`: dir DIRECTORY, guest yes|no, home DIRECTORY, held STATE DIRECTORY,
#   done, fail REASON.

# The mark of a sandbox's own directory: a symbolic link beside it, which is made whole or not at all.
mark_of() { readlink ".$1.owner" 2>/dev/null; }

# Claims the directory $d before it is made, so that nobody's files are taken for a sandbox's own.
claim() {
  if [ -n "$r" ]; then
    [ -n "$(mark_of "$d")" ] || ln -s "$o.$i" ".$d.owner" 2>/dev/null
    return
  fi
  # A mark of ours without a directory is left of a removal that was cut off.
  case $(mark_of "$d") in "$o".*) [ -e "$d" ] || rm -f -- ".$d.owner" ;; esac
  if ln -s "$o.$i" ".$d.owner" 2>/dev/null; then
    [ ! -e "$d" ] || { rm -f -- ".$d.owner"; fail taken other; }
    return
  fi
  case $(mark_of "$d") in
    "$o.$i") ;;
    "$o".*) fail taken ours ;;
    '') fail write ;;
    *) fail taken other ;;
  esac
}

# Removes the directory $d with its mark, if it is the owner's.
release() {
  case $(mark_of "$d") in
    "$o".*) rm -rf -- "$d" && rm -f -- ".$d.owner" || exit 1 ;;
    *) [ ! -e "$d" ] || fail taken other ;;
  esac
  say done
}

# Names what looks like directories of sandboxes, those of the owner first; at most 300.
list_held() {
  c=0
  for q in ours other; do
    for t in glovebox-* .glovebox-*.owner; do
      case $t in
        .*) t=${t#.}; t=${t%.owner}; [ ! -d "$t" ] || continue ;;
        *) [ -d "$t" ] || continue ;;
      esac
      case $t in *[!a-z0-9_-]*) continue ;; esac
      case $(mark_of "$t") in "$o".*) s=ours ;; *) s=other ;; esac
      [ "$s" = "$q" ] && [ "$c" -lt 300 ] || continue
      c=$((c + 1))
      say held "$s" "$t"
    done
  done
  say done
}

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
    [ -z "$o" ] || claim
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
