/* A critical section that proves itself: PLACE ID MILLIS CODE FORKS SPEC...

   Each SPEC is a lock and how it is held: NAME/x alone, NAME/X alone by a lease around the section's own, NAME/s shared, NAME/n in
   the slot that TENURE_SLOT names. It is proved by
   kernel locks on files of its own, PLACE/NAME.0 and so on, about which tenure knows nothing: alone is all of them
   alone, shared is all of them shared, a slot is one of them alone. Whoever finds one taken writes that down as an overlap.
   They are the process's own locks: of one that was killed they are gone as soon as it cannot do anything any more. Those that
   belong to an open file, as flock's, the kernel gives up some time later, and in any order.

   With LAB_UNTIL in its environment it is not begun after that moment, but ends with TOO_LATE.

   PLACE/history gets a line when the section begins and one when it ends, each by one write. With FORKS a child does all of it,
   and outlives a parent that is killed. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As many as a lock can have slots here. */
#define PROOFS 3

/* Not the status of any other section. */
#define TOO_LATE 99

static int history;

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void note(const char *line)
{
    size_t length = strlen(line);
    if (write(history, line, length) != (ssize_t)length)
        _exit(98);
}

static void prove(const char *place, const char *id, const char *spec)
{
    const char *slash = strrchr(spec, '/');
    const char *slot = getenv("TENURE_SLOT");
    char line[512];
    for (int i = 0; i < PROOFS; i++) {
        if (slash[1] == 'n' && (!slot || atoi(slot) != i))
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%.*s.%d", place, (int)(slash - spec), spec, i);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            _exit(97);
        struct flock all = {.l_type = slash[1] == 's' ? F_RDLCK : F_WRLCK};
        if (fcntl(file, F_SETLK, &all)) {
            snprintf(line, sizeof line, "O %lld %s %s\n", now(), id, spec);
            note(line);
        }
    }
}

int main(int count, char **words)
{
    if (count < 7)
        return 96;
    const char *place = words[1], *id = words[2], *fence = getenv("TENURE_FENCE");
    long millis = atol(words[3]);
    if (atoi(words[5])) {
        int status, child = fork();
        if (child < 0)
            return 95;
        if (child) {
            if (waitpid(child, &status, 0) != child)
                return 94;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 93;
        }
    }
    char line[1024];
    snprintf(line, sizeof line, "%s/history", place);
    history = open(line, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (history < 0)
        return 92;
    const char *until = getenv("LAB_UNTIL");
    if (until && now() > atoll(until))
        return TOO_LATE;
    for (int i = 6; i < count; i++)
        prove(place, id, words[i]);
    int length = snprintf(line, sizeof line, "E %lld %s %s", now(), id, fence ? fence : "0");
    for (int i = 6; i < count; i++)
        length += snprintf(line + length, sizeof line - length, " %s", words[i]);
    snprintf(line + length, sizeof line - length, "\n");
    note(line);
    struct timespec time = {millis / 1000, millis % 1000 * 1000000};
    while (nanosleep(&time, &time))
        ;
    snprintf(line, sizeof line, "L %lld %s\n", now(), id);
    note(line);
    return atoi(words[4]);
}
