/* The critical section: FILE NUMBER [GATE]. Reads the clock first and last, and adds both and the number to FILE as
   one record. With GATE, a socket, it stays until the other end of that is closed; without, for the microseconds that
   SECTION_TAKES says.

   In C, and linked statically, because its start is a part of every hand-off that is measured: this is the program
   that starts the soonest. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words)
{
    long long began = now();
    if (count < 3)
        return 1;
    int file = open(words[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return 2;
    if (count > 3) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int gate = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char byte;
        snprintf(address.sun_path, sizeof address.sun_path, "%s", words[3]);
        /* Refused when the benchmark is gone, and closed when it goes: this does not outlive it. */
        if (gate < 0 || connect(gate, (struct sockaddr *)&address, sizeof address) || read(gate, &byte, 1))
            return 3;
    } else if (getenv("SECTION_TAKES"))
        usleep(atoi(getenv("SECTION_TAKES")));
    char record[80];
    long long ended = now();
    int length = snprintf(record, sizeof record, "%20s %20lld %20lld\n", words[2], began, ended);
    return write(file, record, length) == length ? 0 : 4;
}
