# Completion of glovebox for fish: put this file into ~/.config/fish/completions.
function __glovebox_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l answer ($program __complete -- $words "$current" 2>/dev/null)
    set -l part $answer[1]
    set -e answer[1]
    for line in $answer
        echo $line
    end
    switch "$part"
        case files
            __fish_complete_path "$current"
        case directories
            __fish_complete_directories "$current" ''
        case commands
            __fish_complete_command
    end
end
complete -c glovebox -f -a '(__glovebox_complete)'
