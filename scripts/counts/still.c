/* Time and chance that are the same in every run, preloaded by run.sh into the programs whose instructions are counted.
 *
 * Each thread has a clock of its own: a microsecond passes with each look at it, and a wait for events that ends without one takes its time.
 * What is asked of the operating system's chance is a row of numbers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static __thread uint64_t nanos = 1000000000;
static __thread uint8_t drawn;

int clock_gettime(clockid_t clock, struct timespec *at) {
    nanos += 1000;
    at->tv_sec = (time_t)(nanos / 1000000000) + (clock == CLOCK_REALTIME ? 1700000000 : 0);
    at->tv_nsec = (long)(nanos % 1000000000);
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int millis) {
    int found = (int)syscall(SYS_epoll_wait, epoll, events, most, millis);
    if (found == 0 && millis > 0) nanos += (uint64_t)millis * 1000000;
    return found;
}

/* What allocators ask directly. */
long syscall(long number, ...) {
    static long (*real)(long, long, long, long, long, long, long);
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long), e = va_arg(list, long);
    long f = va_arg(list, long);
    va_end(list);
    if (number == SYS_getrandom) return getrandom((void *)a, (size_t)b, (unsigned)c);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a, b, c, d, e, f);
}

ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
    (void)flags;
    for (size_t at = 0; at < length; at++) ((uint8_t *)buffer)[at] = drawn++;
    return (ssize_t)length;
}
