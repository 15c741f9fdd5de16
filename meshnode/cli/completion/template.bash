# Completion of words for meshnode in bash 4 and later; `meshnode completion bash` prints it.

# What is known of the command $1: its own verbs, its options, of which kind their values are, and its other words.
_meshnode_of() {
    verbs='' options='' values=() places=() more=0
    case $1 in
@TABLE@
    *) return 1 ;;
    esac
}

# Which kind of value the option $1 takes; fails where it takes none.
_meshnode_value() {
    local each
    for each in "${values[@]}"; do
        if [[ ${each%% *} == "$1" ]]; then
            kind=${each#* }
            return 0
        fi
    done
    return 1
}

# Offer the lines of standard input, quoted as they have to be: nothing of them is ever evaluated.
_meshnode_lines() {
    local line
    while IFS= read -r line; do
        [[ $line == "$cur"* ]] || continue
        if [[ -z $quote ]]; then
            printf -v line %q "$line"
        elif [[ $line == *[\'\"\$\`\\!]* ]]; then
            continue
        fi
        COMPREPLY+=("$line")
    done
}

_meshnode_kind() {
    case $1 in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    anything) ;;
    words*) COMPREPLY=($(compgen -W "${1#words }" -- "$cur")) ;;
    *) _meshnode_lines < <("$program" "${home[@]}" completion --words "$1" 2>/dev/null </dev/null) ;;
    esac
}

# A word as it was typed, without its quotes; ~ alone is expanded.
_meshnode_plain() {
    plain=${1//[\\\"\']/}
    [[ $plain == '~' || $plain == '~/'* ]] && plain=$HOME${plain#'~'}
}

_meshnode() {
    local cur=$2 program plain quote='' command='' kind='' each at=0 pending='' glued='' verbs options more
    local -a values places home=()
    COMPREPLY=()
    _meshnode_plain "$1"
    program=$plain
    _meshnode_of ''
    for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $each == [=:]* ]]; then # bash takes --home=DIR and id=n1 apart
            [[ -n $pending ]] || glued=1
        elif [[ -n $glued ]]; then
            glued=''
        elif [[ -n $pending ]]; then
            _meshnode_plain "$each"
            [[ $pending == --home ]] && home=(--home "$plain")
            pending=''
        elif [[ $each == -* ]]; then
            _meshnode_value "$each" && pending=$each
        elif [[ " $verbs " == *" $each "* ]]; then
            command=${command:+$command }$each at=0
            _meshnode_of "$command" || return 0
        else
            at=$((at + 1))
        fi
    done
    cur=${COMP_WORDS[COMP_CWORD]}
    [[ $cur == '=' ]] && cur='' && glued=''
    [[ -n $glued ]] && return 0
    if [[ $cur == [\"\']* ]]; then
        quote=${cur:0:1} cur=${cur:1}
    fi
    cur=${cur//\\/}
    if [[ -n $pending ]]; then
        _meshnode_value "$pending" && _meshnode_kind "$kind"
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    else
        [[ $at -eq 0 && -n $verbs ]] && COMPREPLY=($(compgen -W "$verbs" -- "$cur"))
        [[ $more -eq 1 && $at -ge ${#places[@]} ]] && at=$((${#places[@]} - 1))
        [[ $at -lt ${#places[@]} ]] && _meshnode_kind "${places[at]}"
    fi
    return 0
}

complete -F _meshnode meshnode
