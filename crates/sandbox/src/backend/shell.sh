# What every script for another machine begins with. The sender sets n (nonce) in front of it.
say() { printf '\nGLOVEBOX-%s %s\n' "$n" "$*"; }
fail() { say fail "$*"; exit 1; }

# The SHA-256 of a file, by the program that `find_tool` has found.
sum() {
  case $tool in
    sha256sum) set -- $(sha256sum <"$1") ;;
    busybox) set -- $(busybox sha256sum <"$1") ;;
    shasum) set -- $(shasum -a 256 <"$1") ;;
    cksum) set -- $(cksum -a sha256 --untagged <"$1") ;;
    openssl) set -- $(openssl dgst -sha256 -r <"$1") ;;
  esac
  printf '%s' "$1"
}

# The first program here that computes it rightly.
find_tool() {
  for tool in sha256sum busybox shasum cksum openssl; do
    command -v "$tool" >/dev/null 2>&1 || continue
    [ "$(sum /dev/null 2>/dev/null)" = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 ] && return
  done
  fail hash
}

# A directory that is ours, writable, and lets programs run.
usable() {
  [ -n "$1" ] || return 1
  (umask 077; mkdir -p "$1") 2>/dev/null || return 1
  [ -d "$1" ] && [ -O "$1" ] || return 1
  (umask 077; printf '#!/bin/sh\nexit 0\n' >"$1/try.$n" && chmod 700 "$1/try.$n") 2>/dev/null || return 1
  "$1/try.$n" 2>/dev/null </dev/null
  ok=$?
  rm -f "$1/try.$n"
  return $ok
}

# Whether a guest for the architecture $a can run here at all.
check_machine() {
  [ "$(uname -s 2>/dev/null)" = Linux ] || fail "system $(uname -s 2>/dev/null)"
  [ "$(uname -m)" = "$a" ] || fail "arch $(uname -m)"
  find_tool
}
