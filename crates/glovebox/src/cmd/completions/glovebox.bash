# Completion of glovebox for bash: `source` this file, or put it below bash-completion's `completions`.
_glovebox() {
    local current=${COMP_WORDS[COMP_CWORD]} line
    local -a answer
    COMPREPLY=()
    mapfile -t answer < <("${COMP_WORDS[0]/#\~/$HOME}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    for line in "${answer[@]:1}"; do
        COMPREPLY+=("${line%%$'\t'*}")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace
    # The shell completes what follows the equals sign as a word of its own.
    [[ $current == = ]] && current=
    case ${answer[0]-} in
        files)
            compopt -o filenames
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
            ;;
        directories)
            compopt -o filenames
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current")
            ;;
        commands)
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$current")
            ;;
    esac
}
complete -F _glovebox glovebox
