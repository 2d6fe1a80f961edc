# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_tenure_global_optspecs
    string join \n db= q/quiet v/verbose h/help V/version
end

function __fish_tenure_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_tenure_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_tenure_using_subcommand
    set -l cmd (__fish_tenure_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c tenure -n "__fish_tenure_needs_command" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_needs_command" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_needs_command" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_needs_command" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "acquire" -d 'Take locks and print the lease\'s token on stdout'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "release" -d 'Give a lease\'s locks back'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "extend" -d 'Reset a lease\'s time to live'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "run" -d 'Hold locks while a command runs'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "status" -d 'Show who holds what, and who waits'
complete -c tenure -n "__fish_tenure_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l ttl -d 'How long the lease lives without being renewed' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s w -l wait -l timeout -d 'Wait this long for the locks, or `forever`; without it, one try' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l slots -d 'Share the lock with others that say the same NUMBER, as many as that at once' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l at-least -d 'Keep the locks taken for this long after the grant, even if they are given back before' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s E -l conflict-exit-code -d 'The exit status when a lock is held by another, or the wait ran out' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l note -d 'A text for whoever looks at who holds the locks: `status` and the busy message show it' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l fd -d 'Tie the lease to your descriptor N: it is held as long as that is open, in whatever process' -r
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s n -l no-wait -l nonblock -l nb -d 'Try once, and be done when a lock is held by another (the default)'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s s -l shared -d 'Share the locks with others that say --shared too'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s x -s e -l exclusive -d 'Share the locks with nobody (the default)'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l shell -d 'Print a line for the shell\'s eval, that exports the token, the fence and with --slots the slot'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -l json -d 'Print one JSON object instead of the token alone'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_using_subcommand acquire" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_using_subcommand release" -l token -d 'The token that `acquire` printed' -r
complete -c tenure -n "__fish_tenure_using_subcommand release" -l fd -d 'Give back what is tied to your descriptor N; no token is needed' -r
complete -c tenure -n "__fish_tenure_using_subcommand release" -l if-fence -d 'With --force: only if the lease still has this fencing number' -r
complete -c tenure -n "__fish_tenure_using_subcommand release" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_using_subcommand release" -l force -d 'Take the locks from whoever holds them; no token is needed'
complete -c tenure -n "__fish_tenure_using_subcommand release" -l now -d 'With --force: do not wait until the holder is gone'
complete -c tenure -n "__fish_tenure_using_subcommand release" -l json -d 'Print one JSON object'
complete -c tenure -n "__fish_tenure_using_subcommand release" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_using_subcommand release" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_using_subcommand release" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_using_subcommand extend" -l token -d 'The token that `acquire` printed' -r
complete -c tenure -n "__fish_tenure_using_subcommand extend" -l ttl -d 'The new time to live, counted from now; without it, the one that the lease has' -r
complete -c tenure -n "__fish_tenure_using_subcommand extend" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_using_subcommand extend" -l json -d 'Print one JSON object'
complete -c tenure -n "__fish_tenure_using_subcommand extend" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_using_subcommand extend" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_using_subcommand extend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_using_subcommand extend" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_using_subcommand run" -l ttl -d 'How long the lease lives without being renewed' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -s w -l wait -l timeout -d 'Wait this long for the locks, or `forever`; without it, one try' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l slots -d 'Share the lock with others that say the same NUMBER, as many as that at once' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l at-least -d 'Keep the locks taken for this long after the grant, even if they are given back before' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -s E -l conflict-exit-code -d 'The exit status when a lock is held by another, or the wait ran out' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l note -d 'A text for whoever looks at who holds the locks: `status` and the busy message show it' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l max-time -d 'Stop CMD after this long, and exit with 124' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -s k -l kill-after -d 'How long after the signal that stops CMD it is killed' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l on-lost -d 'The signal that stops CMD when the lease is lost' -r
complete -c tenure -n "__fish_tenure_using_subcommand run" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_using_subcommand run" -s n -l no-wait -l nonblock -l nb -d 'Try once, and be done when a lock is held by another (the default)'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s s -l shared -d 'Share the locks with others that say --shared too'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s x -s e -l exclusive -d 'Share the locks with nobody (the default)'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_using_subcommand run" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_using_subcommand status" -l token -d 'Say whether this lease is still held: exit status 0, or 76' -r
complete -c tenure -n "__fish_tenure_using_subcommand status" -l db -d 'The database file that holds the locks; its directory must exist' -r -F
complete -c tenure -n "__fish_tenure_using_subcommand status" -l watch -d 'Show it anew each second, until Ctrl-C'
complete -c tenure -n "__fish_tenure_using_subcommand status" -l json -d 'Print one JSON object a lock, each on a line'
complete -c tenure -n "__fish_tenure_using_subcommand status" -s q -l quiet -d 'Say nothing of locks that are busy, waited for or not held; the exit status tells'
complete -c tenure -n "__fish_tenure_using_subcommand status" -s v -l verbose -d 'Say on stderr what is done'
complete -c tenure -n "__fish_tenure_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c tenure -n "__fish_tenure_using_subcommand status" -s V -l version -d 'Print version'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "acquire" -d 'Take locks and print the lease\'s token on stdout'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "release" -d 'Give a lease\'s locks back'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "extend" -d 'Reset a lease\'s time to live'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "run" -d 'Hold locks while a command runs'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "status" -d 'Show who holds what, and who waits'
complete -c tenure -n "__fish_tenure_using_subcommand help; and not __fish_seen_subcommand_from acquire release extend run status help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
