/* Preloaded into a process: its clock of the day differs from the machine's by the seconds that a file holds, which may
 * change at any time: `java` in the folder LEAP_FOLDER for a JVM, `others` for all else.
 *
 * Monotonic clocks are left alone, as a clock that is set leaves them. Waits until a time of the day end at that time of
 * the leapt clock, as they would if the machine's own were set: so they are translated, too. A time of the day is told
 * from one of a monotonic clock, which the same calls take, by its size.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SMALLEST_TIME_OF_DAY 1000000000

static volatile long *ahead_seconds;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_cond)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clock)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*real_cnd)(cnd_t *, mtx_t *, const struct timespec *);
static int (*real_sem)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("LEAP_FOLDER");
    int is_java = !strcmp(program_invocation_short_name, "java");
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", folder ? folder : "", is_java ? "java" : "others");
    int file = open(name, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    real_cond = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond) real_cond = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_cond_clock = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    real_cnd = dlsym(RTLD_NEXT, "cnd_timedwait");
    real_sem = dlsym(RTLD_NEXT, "sem_timedwait");
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (mapped != MAP_FAILED) ahead_seconds = mapped;
}

static long ahead(void) { return ahead_seconds ? *ahead_seconds : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = real_gettime ? real_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

static struct timespec machines(const struct timespec *until) {
    struct timespec translated = *until;
    if (until->tv_sec >= SMALLEST_TIME_OF_DAY) translated.tv_sec -= ahead();
    return translated;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec translated = machines(until);
    return real_cond(condition, mutex, &translated);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    struct timespec translated = machines(until);
    return real_cond_clock(condition, mutex, clock, &translated);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec translated = machines(until);
    return real_cnd(condition, mutex, &translated);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec translated = machines(until);
    return real_sem(semaphore, &translated);
}
