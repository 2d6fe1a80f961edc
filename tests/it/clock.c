/* A wall clock that is wrong by STEP seconds, for programs that are started with LD_PRELOAD. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const char *step = getenv("STEP");
    int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += atol(step);
    return result;
}
