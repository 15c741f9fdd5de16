#compdef meshnode
# Completion of words for meshnode in zsh; `meshnode completion zsh` prints it.

# What is known of the command $1: its own verbs, its options, of which kind their values are, and its other words.
_meshnode_of() {
    verbs=() flags=() values=() places=() more=0
    case $1 in
@TABLE@
    *) return 1 ;;
    esac
}

# Which kind of value the option $1 takes; fails where it takes none.
_meshnode_value() {
    local each
    for each in $values; do
        if [[ ${each%% *} == $1 ]]; then
            kind=${each#* }
            return 0
        fi
    done
    return 1
}

_meshnode_kind() {
    local -a lines
    case $1 in
    files) _files ;;
    folders) _files -/ ;;
    anything) return 1 ;;
    words*) compadd -- ${(s: :)${1#words }} ;;
    *)
        lines=(${(f)"$($program $home_of completion --words $1 2>/dev/null </dev/null)"})
        compadd -a lines
        ;;
    esac
}

_meshnode() {
    local command='' kind='' each at=1 pending='' more program=${(Q)words[1]}
    local -a verbs flags values places home_of
    program=${program/#\~\//$HOME/}
    _meshnode_of ''
    for each in ${words[2,CURRENT-1]}; do
        each=${(Q)each}
        if [[ -n $pending ]]; then
            [[ $pending == --home ]] && home_of=(--home ${each/#\~\//$HOME/})
            pending=''
        elif [[ $each == --home=* ]]; then
            home_of=(--home ${${each#--home=}/#\~\//$HOME/})
        elif [[ $each == -* ]]; then
            _meshnode_value $each && pending=$each
        elif (( ${verbs[(I)${(b)each}:*]} )); then
            command=${command:+$command }$each at=1
            _meshnode_of $command || return 1
        else
            (( at += 1 ))
        fi
    done
    if [[ -n $pending ]]; then
        _meshnode_value $pending && _meshnode_kind $kind
    elif [[ $words[CURRENT] == --*=* ]]; then
        each=${words[CURRENT]%%=*}
        compset -P '*='
        _meshnode_value $each && _meshnode_kind $kind
    elif [[ $words[CURRENT] == -* ]]; then
        _describe -o option flags
    else
        [[ $at -eq 1 && $#verbs -gt 0 ]] && _describe verb verbs
        (( more && at > $#places )) && at=$#places
        (( at <= $#places )) && _meshnode_kind $places[at]
    fi
}

if [[ $funcstack[1] == _meshnode ]]; then
    _meshnode "$@"
else
    compdef _meshnode meshnode
fi
