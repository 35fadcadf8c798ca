/* When sends are due that come at random: distances are exponential, so arrivals are a Poisson process.
 *
 * The next arrival is kept as a time, however late it leaves: its latency counts from that time on.
 */
#include "load.h"
#include <math.h>

static double due; /* ns */
static uint64_t state = 0x9E3779B97F4A7C15; /* the same arrivals in each run */

/* xorshift64*: above 0, at most 1. */
static double uniform(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return ((double)((state * 0x2545F4914F6CDD1D) >> 11) + 1) / 9007199254740992.0;
}

void arrivals_begin(void) { due = (double)clock_ns(); }

int64_t due_ns(void) { return (int64_t)due; }

void next_arrival(void) { due -= log(uniform()) * 1e9 / options.rate; }

double behind_ms(void) {
    double late = (double)clock_ns() - due;
    return late > 0 ? late / 1e6 : 0;
}
