# Runs a command line in a named session: working directory, variables and functions are taken from a file and
# written back to it. In: the command, the session's name, where to go (or nothing).
unset GLOVEBOX_DRIVER
[[ ${GLOVEBOX_KEEP_DIR:=${TMPDIR:-/tmp}/.glovebox-$EUID} ]]
if ! { mkdir -m 700 -- "$GLOVEBOX_KEEP_DIR" 2>/dev/null || { [[ -O $GLOVEBOX_KEEP_DIR && -d $GLOVEBOX_KEEP_DIR && ! -L $GLOVEBOX_KEEP_DIR ]]; }; }; then
  echo "glovebox: $GLOVEBOX_KEEP_DIR belongs to somebody else, so the session cannot be kept" >&2
  exit 125
fi
__glovebox_file=$GLOVEBOX_KEEP_DIR/$2
unset GLOVEBOX_KEEP_DIR
__glovebox_keep() {
  set +eux
  # The command may have a trap of its own, which comes after this.
  [[ $(trap -p EXIT) != *__glovebox_keep* ]] || trap - EXIT
  { printf 'cd -- %q 2>/dev/null\n' "$PWD"; __glovebox_variables; __glovebox_functions; } >|"$__glovebox_file.$$" 2>/dev/null &&
    command mv -f -- "$__glovebox_file.$$" "$__glovebox_file"
}
__glovebox_variables() {
  # Nothing is local here: it would stand for the session's own. Those of the shell itself are set by each.
  mapfile -t __glovebox_names <<<"$(compgen -A variable)"
  for __glovebox_name in "${__glovebox_names[@]}"; do
    case $__glovebox_name in
      __glovebox_* | _ | BASH | BASH_* | BASHOPTS | BASHPID | COMP_* | DIRSTACK | EPOCH* | EUID | FUNCNAME | FUNCNEST) ;;
      GROUPS | HISTCMD | LINENO | MAPFILE | OPTARG | OPTIND | PIPESTATUS | PPID | RANDOM | SECONDS | SHELLOPTS) ;;
      SHLVL | SRANDOM | UID) ;;
      *) declare -p -- "$__glovebox_name" 2>/dev/null ;;
    esac
  done
}
__glovebox_functions() {
  mapfile -t __glovebox_names <<<"$(compgen -A function)"
  for __glovebox_name in "${__glovebox_names[@]}"; do
    [[ $__glovebox_name == __glovebox_* ]] || declare -f -- "$__glovebox_name"
  done
}
__glovebox_go=$3
[[ -f $__glovebox_file ]] && . "$__glovebox_file"
if [[ $__glovebox_go ]] && ! cd -- "$__glovebox_go"; then exit 125; fi
trap '__glovebox_status=$?; __glovebox_keep; exit $__glovebox_status' EXIT
eval "set --
$1"
__glovebox_status=$?
__glovebox_keep
exit "$__glovebox_status"
