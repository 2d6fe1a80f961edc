# Completion for fish; made from the program's own command line.

# What the words before the cursor say: the verb, the number of the word `--` or 0, and the database, a line each.
function __tenure_parse
    set -l words (commandline -opc)
    set -l verb ''
    set -l dashes 0
    set -l db ''
    set -l takes_db ''
    for at in (seq 2 (count $words))
        set -l word $words[$at]
        if test -n "$takes_db"
            set db $word
            set takes_db ''
        else if test "$word" = --
            set dashes $at
            break
        else if test "$word" = --db
            set takes_db yes
        else if string match -q -- '--db=*' $word
            set db (string replace -- --db= '' $word)
        else if test -z "$verb"; and not string match -q -- '-*' $word
            set verb $word
        end
    end
    printf '%s\n' $verb $dashes (string replace -r '^~/' $HOME/ -- $db)
end

# Whether the cursor is where words of this verb stand; with none, of the program itself.
function __tenure_at
    set -l parsed (__tenure_parse)
    test "$parsed[1]" = "$argv[1]"; and test $parsed[2] -eq 0
end

# Whether the cursor is in the command that a verb runs.
function __tenure_in_command
    set -l parsed (__tenure_parse)
    contains -- "$parsed[1]" @RUNS@; and test $parsed[2] -gt 0
end

function __tenure_command
    set -l dashes (__tenure_parse)[2]
    set -l words (commandline -opc)
    set -e words[1..$dashes]
    set -l line (string join -- ' ' (string escape -- $words) (commandline -ct))
    complete "--do-complete=$line"
end

# The locks in use but for those that are named already; with --past, those that were in use, too.
function __tenure_names
    set -l words (commandline -opc)
    set -l db (__tenure_parse)[3]
    set -l program (string replace -r '^~/' $HOME/ -- $words[1])
    for name in ($program (test -n "$db"; and printf '%s\n' --db $db) __names $argv 2>/dev/null)
        contains -- $name $words; or echo $name
    end
end

# Samples, or what is typed with each unit.
function __tenure_durations
    set -l typed (commandline -ct | string replace -r '^--[^=]*=' '')
    if string match -qr '^[0-9]+$' -- $typed
        printf "$typed%s\tduration\n" @UNITS@
    else
        printf '%s\tduration\n' @DURATIONS@ $argv
    end
end

function __tenure_signals
    printf '%s\tsignal\n' @SIGNALS@
end

complete -c tenure -f
complete -c tenure -n __tenure_in_command -a '(__tenure_command)'
@COMPLETES@
