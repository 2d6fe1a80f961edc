# Completion for bash; made from the program's own command line.

# Splits what stands before the cursor into `words`, as the shell will read them; `quote` is what is still open.
# COMP_WORDS would be split at colons and equals signs too, which names may have.
__tenure_split() {
    local line=${COMP_LINE:0:COMP_POINT} word='' char
    local -i at begun=0
    for ((at = 0; at < ${#line}; at++)); do
        char=${line:at:1}
        if [[ $quote ]]; then
            if [[ $char == "$quote" ]]; then
                quote=''
            elif [[ $quote$char == '"\' && ${line:at+1:1} == [\"\$\`\\] ]]; then
                word+=${line:++at:1}
            else
                word+=$char
            fi
        elif [[ $char == [[:space:]] ]]; then
            ((begun)) && words+=("$word")
            word='' begun=0
        else
            begun=1
            case $char in
                \\) word+=${line:++at:1} ;;
                [\'\"]) quote=$char ;;
                *) word+=$char ;;
            esac
        fi
    done
    words+=("$word")
}

# Offers those of the words that begin as `cur` does, each behind $1, as they have to be written here.
__tenure_offer() {
    local head=$1 breaks='' part word
    shift
    for part in : = @; do
        [[ $COMP_WORDBREAKS == *"$part"* ]] && breaks+=$part
    done
    # What bash keeps of the word, because it takes it for a word of its own.
    local kept=''
    [[ ! $quote && $breaks ]] && part=${cur##*[$breaks]} kept=${cur%"$part"}
    for word; do
        word=$head$word
        [[ $word == "$cur"* ]] || continue
        case $quote in
            '"') [[ $word == *[\"\$\`\\]* ]] && continue ;;
            "'") [[ $word == *\'* ]] && continue ;;
            *) printf -v word %q "${word#"$kept"}" ;;
        esac
        COMPREPLY+=("$word")
    done
}

# Offers values of a kind behind $2.
__tenure_offer_values() {
    local value=${cur#"$2"}
    case $1 in
        files)
            # bash completes what stands behind the equals sign, and quotes it.
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "${value/#\~\//$HOME/}")
            ;;
        durations | waits)
            local -a samples=(@DURATIONS@)
            [[ $1 == waits ]] && samples+=(forever)
            [[ $value =~ ^[0-9]+$ ]] && samples=("$value"{@UNITS@})
            __tenure_offer "$2" "${samples[@]}"
            ;;
        signals) __tenure_offer "$2" @SIGNALS@ ;;
        words:*)
            local IFS=,
            __tenure_offer "$2" ${1#words:}
            ;;
    esac
}

# Offers the locks in use but for those that are named already; with --past, those that were in use, too.
__tenure_offer_names() {
    local program=${words[0]/#\~\//$HOME/} name
    local -a names=() new=()
    db=${db/#\~\//$HOME/}
    mapfile -t names < <("$program" ${db:+--db "$db"} __names "$@" 2>/dev/null)
    for name in "${names[@]}"; do
        local known is_new=1
        for known in "${named[@]}"; do
            [[ $known == "$name" ]] && is_new=''
        done
        [[ $is_new ]] && new+=("$name")
    done
    __tenure_offer '' "${new[@]}"
}

# Completes what stands behind `--`: a command of its own.
__tenure_offer_command() {
    local -i at=1
    while [[ ${COMP_WORDS[at]} != -- ]]; do at+=1; done
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $((at + 1))
    elif declare -F _command_offset >/dev/null; then
        _command_offset $((at + 1))
    elif ((COMP_CWORD == at + 1)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    else
        compopt -o default
    fi
}

# What a verb's options are.
__tenure_options() {
    case $1 in
@OPTIONS@
    esac
}

# Of what kind the value of a verb's option is; fails for one that has none.
__tenure_kind() {
    case $1 in
@KINDS@
        *) return 1 ;;
    esac
}

_tenure() {
    local -a words=() named=() options=()
    local quote='' cur='' verb='' db='' word kind
    local -i at ended=0
    COMPREPLY=()
    __tenure_split
    cur=${words[-1]}
    for ((at = 1; at < ${#words[@]} - 1; at++)); do
        word=${words[at]}
        if ((ended)) || [[ $word != -?* ]]; then
            if [[ $verb ]]; then named+=("$word"); else verb=$word; fi
        elif [[ $word == -- ]]; then
            if [[ $verb == @RUNS@ ]]; then
                __tenure_offer_command
                return
            fi
            ended=1
        elif [[ $word == --db=* ]]; then
            db=${word#--db=}
        elif [[ $word != --*=* ]]; then
            # Of short options that stand together the last may have a value.
            [[ $word == -[!-]?* ]] && word=-${word: -1}
            kind=$(__tenure_kind "$verb $word") || continue
            if ((++at == ${#words[@]} - 1)); then
                __tenure_offer_values "$kind" ''
                return
            fi
            [[ $word == --db ]] && db=${words[at]}
        fi
    done
    if ((ended == 0)) && [[ $cur == --*=* ]]; then
        word=${cur%%=*}
        kind=$(__tenure_kind "$verb $word") && __tenure_offer_values "$kind" "$word="
    elif ((ended == 0)) && [[ $cur == -* ]]; then
        read -ra options < <(__tenure_options "$verb")
        __tenure_offer '' "${options[@]}"
    else
        case $verb in
            '') __tenure_offer '' @VERBS@ ;;
            help) ((${#named[@]} == 0)) && __tenure_offer '' @VERBS@ ;;
            @ENDING@) __tenure_offer_names ;;
            @NAMING@)
                __tenure_offer_names --past
                [[ $verb == @RUNS@ && $named ]] && __tenure_offer '' --
                ;;
        esac
    fi
}

complete -F _tenure -o nosort -o bashdefault tenure
