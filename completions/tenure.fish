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
    contains -- "$parsed[1]" run; and test $parsed[2] -gt 0
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
        printf "$typed%s\tduration\n" s m h d
    else
        printf '%s\tduration\n' 10s 30s 1m 5m 10m 30m 1h $argv
    end
end

function __tenure_signals
    printf '%s\tsignal\n' TERM INT HUP QUIT USR1 USR2 KILL
end

complete -c tenure -f
complete -c tenure -n __tenure_in_command -a '(__tenure_command)'
complete -c tenure -n '__tenure_at' -a acquire -d 'Take locks and print the lease\'s token on stdout'
complete -c tenure -n '__tenure_at help' -a acquire -d 'Take locks and print the lease\'s token on stdout'
complete -c tenure -n '__tenure_at' -a release -d 'Give a lease\'s locks back'
complete -c tenure -n '__tenure_at help' -a release -d 'Give a lease\'s locks back'
complete -c tenure -n '__tenure_at' -a extend -d 'Reset a lease\'s time to live'
complete -c tenure -n '__tenure_at help' -a extend -d 'Reset a lease\'s time to live'
complete -c tenure -n '__tenure_at' -a run -d 'Hold locks while a command runs'
complete -c tenure -n '__tenure_at help' -a run -d 'Hold locks while a command runs'
complete -c tenure -n '__tenure_at' -a status -d 'Show who holds what, and who waits'
complete -c tenure -n '__tenure_at help' -a status -d 'Show who holds what, and who waits'
complete -c tenure -n '__tenure_at' -a log -d 'Show what happened'
complete -c tenure -n '__tenure_at help' -a log -d 'Show what happened'
complete -c tenure -n '__tenure_at' -a help -d 'Print this message or the help of the given subcommand(s)'
complete -c tenure -n '__tenure_at help' -a help -d 'Print this message or the help of the given subcommand(s)'
complete -c tenure -n '__tenure_at' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at acquire' -a '(__tenure_names --past)' -d lock
complete -c tenure -n '__tenure_at acquire' -l ttl -x -k -a '(__tenure_durations)' -d 'How long the lease lives without being renewed'
complete -c tenure -n '__tenure_at acquire' -s w -l wait -l timeout -x -k -a '(__tenure_durations forever)' -d 'Wait this long for the locks, or `forever`; without it, one try'
complete -c tenure -n '__tenure_at acquire' -l slots -x -d 'Share the lock with others that say the same NUMBER, as many as that at once'
complete -c tenure -n '__tenure_at acquire' -l at-least -x -k -a '(__tenure_durations)' -d 'Keep the locks taken for this long after the grant, even if they are given back before'
complete -c tenure -n '__tenure_at acquire' -s E -l conflict-exit-code -x -d 'The exit status when a lock is held by another, or the wait ran out'
complete -c tenure -n '__tenure_at acquire' -l note -x -d 'A text for whoever looks at who holds the locks: `status` and the busy message show it'
complete -c tenure -n '__tenure_at acquire' -l fd -x -d 'Tie the lease to your descriptor N: it is held as long as that is open, in whatever process'
complete -c tenure -n '__tenure_at acquire' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at acquire' -s n -l no-wait -l nonblock -l nb -d 'Try once, and be done when a lock is held by another (the default)'
complete -c tenure -n '__tenure_at acquire' -s s -l shared -d 'Share the locks with others that say --shared too'
complete -c tenure -n '__tenure_at acquire' -s x -s e -l exclusive -d 'Share the locks with nobody (the default)'
complete -c tenure -n '__tenure_at acquire' -l shell -d 'Print a line for the shell\'s eval, that exports the token, the fence and with --slots the slot'
complete -c tenure -n '__tenure_at acquire' -l json -d 'Print one JSON object instead of the token alone'
complete -c tenure -n '__tenure_at acquire' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at acquire' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at acquire' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at acquire' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at release' -a '(__tenure_names)' -d lock
complete -c tenure -n '__tenure_at release' -l token -x -d 'The token that `acquire` printed; `-` reads it from standard input'
complete -c tenure -n '__tenure_at release' -l fd -x -d 'Give back what is tied to your descriptor N; no token is needed'
complete -c tenure -n '__tenure_at release' -l if-fence -x -d 'With --force: only if the lease still has this fencing number'
complete -c tenure -n '__tenure_at release' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at release' -l force -d 'Take the locks from whoever holds them; no token is needed'
complete -c tenure -n '__tenure_at release' -l now -d 'With --force: do not wait until the holder is gone'
complete -c tenure -n '__tenure_at release' -l json -d 'Print one JSON object a lease, each on a line'
complete -c tenure -n '__tenure_at release' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at release' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at release' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at release' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at extend' -a '(__tenure_names)' -d lock
complete -c tenure -n '__tenure_at extend' -l token -x -d 'The token that `acquire` printed; `-` reads it from standard input'
complete -c tenure -n '__tenure_at extend' -l ttl -x -k -a '(__tenure_durations)' -d 'The new time to live, counted from now; without it, the one that the lease has'
complete -c tenure -n '__tenure_at extend' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at extend' -l json -d 'Print one JSON object'
complete -c tenure -n '__tenure_at extend' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at extend' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at extend' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at extend' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at run' -a '(__tenure_names --past)' -d lock
complete -c tenure -n '__tenure_at run' -l ttl -x -k -a '(__tenure_durations)' -d 'How long the lease lives without being renewed'
complete -c tenure -n '__tenure_at run' -s w -l wait -l timeout -x -k -a '(__tenure_durations forever)' -d 'Wait this long for the locks, or `forever`; without it, one try'
complete -c tenure -n '__tenure_at run' -l slots -x -d 'Share the lock with others that say the same NUMBER, as many as that at once'
complete -c tenure -n '__tenure_at run' -l at-least -x -k -a '(__tenure_durations)' -d 'Keep the locks taken for this long after the grant, even if they are given back before'
complete -c tenure -n '__tenure_at run' -s E -l conflict-exit-code -x -d 'The exit status when a lock is held by another, or the wait ran out'
complete -c tenure -n '__tenure_at run' -l note -x -d 'A text for whoever looks at who holds the locks: `status` and the busy message show it'
complete -c tenure -n '__tenure_at run' -l max-time -x -k -a '(__tenure_durations)' -d 'Stop CMD after this long, and exit with 124'
complete -c tenure -n '__tenure_at run' -s k -l kill-after -x -k -a '(__tenure_durations)' -d 'How long after the signal that stops CMD it is killed'
complete -c tenure -n '__tenure_at run' -l on-lost -x -k -a '(__tenure_signals)' -d 'The signal that stops CMD when the lease is lost'
complete -c tenure -n '__tenure_at run' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at run' -s n -l no-wait -l nonblock -l nb -d 'Try once, and be done when a lock is held by another (the default)'
complete -c tenure -n '__tenure_at run' -s s -l shared -d 'Share the locks with others that say --shared too'
complete -c tenure -n '__tenure_at run' -s x -s e -l exclusive -d 'Share the locks with nobody (the default)'
complete -c tenure -n '__tenure_at run' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at run' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at run' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at run' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at status' -a '(__tenure_names --past)' -d lock
complete -c tenure -n '__tenure_at status' -l token -x -d 'Say whether this lease is still held: exit status 0, or 76'
complete -c tenure -n '__tenure_at status' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at status' -l watch -d 'Show it anew each second, until Ctrl-C'
complete -c tenure -n '__tenure_at status' -l json -d 'Print one JSON object a lock, each on a line'
complete -c tenure -n '__tenure_at status' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at status' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at status' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at status' -s V -l version -d 'Print version'
complete -c tenure -n '__tenure_at log' -a '(__tenure_names --past)' -d lock
complete -c tenure -n '__tenure_at log' -s n -l lines -x -d 'Only the newest NUMBER events'
complete -c tenure -n '__tenure_at log' -l since -x -k -a '(__tenure_durations)' -d 'Only what happened within this time until now'
complete -c tenure -n '__tenure_at log' -l db -r -F -d 'The database file that holds the locks, or the URL of a server; the file\'s directory must exist'
complete -c tenure -n '__tenure_at log' -s f -l follow -d 'Go on showing what happens, until Ctrl-C'
complete -c tenure -n '__tenure_at log' -l timeline -d 'Draw a picture of who held and who waited when'
complete -c tenure -n '__tenure_at log' -l json -d 'Print one JSON object an event, each on a line'
complete -c tenure -n '__tenure_at log' -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n '__tenure_at log' -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n '__tenure_at log' -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n '__tenure_at log' -s V -l version -d 'Print version'
