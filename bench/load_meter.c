/* Clocks, latencies and CPU. */
#define _GNU_SOURCE
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    SUB = 64, /* buckets for each power of two: 1.6 % wide */
    SIZE = 40 * SUB,
};

struct Histogram {
    int64_t counts[SIZE];
};

int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- latency ---- */

Histogram *new_histogram(void) { return calloc(1, sizeof(Histogram)); }

void took(Histogram *h, int64_t ns) {
    uint64_t v = ns < 1 ? 1 : (uint64_t)ns;
    int top = 63 - __builtin_clzll(v);
    int sub = top < 6 ? (int)(v << (6 - top)) : (int)(v >> (top - 6));
    int b = top * SUB + (sub - SUB);
    h->counts[b < SIZE ? b : SIZE - 1]++;
}

double quantile_ms(const Histogram *h, double q) {
    int64_t count = 0, seen = 0;
    for (int i = 0; i < SIZE; i++) count += h->counts[i];
    for (int i = 0; i < SIZE; i++) {
        seen += h->counts[i];
        if (count && (double)seen >= q * (double)count) {
            double base = (double)(1ull << (i / SUB));
            return base * (1 + (i % SUB + 0.5) / SUB) / 1e6;
        }
    }
    return 0;
}

/* ---- CPU and memory ---- */

/* A file of a server's process in /proc. */
static void read_proc(int pid, const char *file, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f) fclose(f);
    if (!n) fail("the server's process %d is gone", pid);
    text[n] = 0;
}

double server_cpu(void) {
    double ticks = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char text[1024];
        read_proc(options.pids[i], "stat", text, sizeof text);
        char *rest = strrchr(text, ')');
        unsigned long user, system;
        if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            fail("/proc/%d/stat can't be read", options.pids[i]);
        ticks += (double)(user + system);
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Resident, without file pages. */
double server_memory_mb(void) {
    double kib = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char text[8192];
        read_proc(options.pids[i], "status", text, sizeof text);
        char *at = strstr(text, "RssAnon:");
        if (!at) fail("/proc/%d/status has no RssAnon", options.pids[i]);
        kib += atof(at + 8);
    }
    return kib / 1024;
}

double own_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Seconds that all cores were busy, with all that runs on the machine. */
double machine_cpu(void) {
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    FILE *f = fopen("/proc/stat", "r");
    if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq,
                     &soft, &steal) != 8)
        fail("/proc/stat can't be read");
    fclose(f);
    return (double)(user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}
