# Completion of words for meshnode in fish; `meshnode completion fish` prints it.

# What is known of the command $argv: its own verbs, its options, of which kind their values are, and its other words.
function __meshnode_of
    switch "$argv"
@TABLE@
        case '*'
            return 1
    end
end

# Which kind of value the option $argv[1] takes; fails where it takes none.
function __meshnode_value
    for each in $__meshnode_values
        set -l parts (string split -m 1 ' ' -- $each)
        if test "$parts[1]" = "$argv[1]"
            echo $parts[2]
            return 0
        end
    end
    return 1
end

# Words of the kind $argv[1], behind $argv[2], for the program and home in the rest.
function __meshnode_kind
    set -l prefix $argv[2]
    set -l found
    switch $argv[1]
        case files
            set found (__fish_complete_path (string replace -r '^--[a-z-]+=' '' -- (commandline -ct)))
        case folders
            set found (__fish_complete_directories (string replace -r '^--[a-z-]+=' '' -- (commandline -ct)))
        case anything
            return
        case 'words*'
            set found (string split ' ' -- (string replace 'words ' '' -- $argv[1]))
        case '*'
            set found ($argv[3..-1] completion --words $argv[1] 2>/dev/null </dev/null)
    end
    for each in $found
        printf '%s%s\n' $prefix $each
    end
end

function __meshnode_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l pending ''
    set -l name
    set -l at 1
    __meshnode_of ''
    for each in $words[2..-1]
        if test -n "$pending"
            test $pending = --home; and set -a program --home (string replace -r '^~/' "$HOME/" -- $each)
            set pending ''
        else if string match -q -- '--home=*' $each
            set -a program --home (string replace -r '^--home=' '' -- $each | string replace -r '^~/' "$HOME/")
        else if string match -q -- '-*' $each
            __meshnode_value $each >/dev/null; and set pending $each
        else if contains -- $each (string split -f 1 \t -- $__meshnode_verbs)
            set -a name $each
            set at 1
            __meshnode_of $name; or return
        else
            set at (math $at + 1)
        end
    end
    if test -n "$pending"
        __meshnode_kind (__meshnode_value $pending) '' $program
    else if string match -qr -- '^--[a-z-]+=' $current
        set -l option (string split -m 1 = -- $current)[1]
        set -l kind (__meshnode_value $option); and __meshnode_kind $kind "$option=" $program
    else if string match -q -- '-*' $current
        printf '%s\n' $__meshnode_options
    else
        test $at -eq 1; and set -q __meshnode_verbs[1]; and printf '%s\n' $__meshnode_verbs
        set -l last (count $__meshnode_places)
        test $__meshnode_more -eq 1 -a $at -gt $last; and set at $last
        test $at -ge 1 -a $at -le $last; and __meshnode_kind $__meshnode_places[$at] '' $program
    end
end

complete -c meshnode -f -a '(__meshnode_complete)'
