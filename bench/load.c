/*
 * The load generator of the benchmark: one thread, epoll, OpenSSL where it is there (load_*.c are its parts).
 *
 *   load send|pull|tail|pop PORT[,PORT…] --topic T [options]    one line of JSON on stdout; exit 1 and a reason on failure
 *
 * send   closed loops of sends; with --batch above 1 of batches (code 320). Beside them, if asked for: --readers that
 *        pull --read-topic once from its start to its end, beginning with the measured time, which ends with them; and
 *        --idle connections that send once and then nothing.
 * pull   closed loops of pulls; each walks one queue and begins again at 0 when fewer than a batch is left
 * tail   sends, and --readers that wait with long polling at the ends of the queues, one queue each, in as many groups
 *        as they need; latency is that from a send to its delivery
 * pop    consumers of one new group, each a closed loop: pop 32 of any queue, then acknowledge each of them, all at once
 *
 *   --broker NAME       in the headers (broker-a); with several ports NAME-0, NAME-1, …, connections spread over them
 *   --connections N     (16)                                    --window N     requests in flight on each (1)
 *   --size N            body bytes (128)                        --batch N      messages a request (send 1, pull 32)
 *   --queues N          spread over N queues, 1..10 (8)         --topics N     spread over T-0000, T-0001, … (1: T)
 *   --tags N            TagA, TagB, … in turn (1)               --subscription TagA   of pulls (*)
 *   --filter SQL92      what the subscription is (TAG)
 *   --transactions 1    sends are halves, each committed by a request that nobody answers, as the Java client does
 *   --delay-least MS, --delay-most MS    sends are for a time that is so far off, all of these equally often
 *   --rate N            sends a second, at even distances       --messages N   instead of a time: N sends
 *   --poisson 1         the sends of --rate come at random, whatever the answers do; latency is from the time at which
 *                       a send was due, so that one which waits for a connection with room is late
 *   --read-rate N       readers beside sends read N messages a second together, again and again, and don't end the run
 *   --frame FILE        sends are the frame of this file (load_frames.c), whose --batch, --size and --topic it holds
 *   --readers N         (0)   --read-topic T                    --idle N       (0), --at-once N of them opened at a time
 *   --tls 1             on all connections; whose certificate it is, is not asked
 *   --access-key U, --secret-key S      each request is signed
 *   --warm S            not measured, first (1)                 --seconds S    measured (5); SIGUSR1 ends each at once
 *   --pids A,B          processes whose CPU and memory is the server's
 *
 * A connection is a closed loop of `window` requests: each answer is followed by the next request, all that one
 * read allows in one write. Requests are those of the Java client with its default JSON header: 310 or 320 with
 * UNIQ_KEY, WAIT and TAGS; 11 with the subscription included. Every answer is checked (response flag, code 0, an
 * opaque that is in flight; a pull: whole records with the right magic); all requests must have been answered and, of
 * a tail, all messages delivered when the program ends. The CPU figures are utime + stime of all threads between the
 * two ends of the measured time, from /proc/PID/stat and getrusage. CPU a message: of sends, and of what readers read
 * beside them; of pulls, a message that was looked at; of a tail, a message that was delivered; of pops, a message that
 * was acknowledged.
 */
#define _GNU_SOURCE
#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    PULL_BYTES = 2 << 20,  /* one whole answer must fit */
    SEND_BYTES = 256 << 10,
    IDLE_BYTES = 4096,
    PORTS_OF_ADDRESS = 20000, /* fewer than a system has */
    SEALED_BYTES = 256 << 10, /* of TLS, read at once */
    OPAQUE_BASE = 100000000, /* nine digits, always */
    OPAQUE_SPAN = 800000000,
    STALL_MS = 20000,
    PULL_NOT_FOUND = 19,
    PULL_RETRY_IMMEDIATELY = 20,
    READ_BATCH = 32,         /* messages of a pull beside sends */
    LOOK_AGAIN_NS = 1000000,
    POLLING_FULL = 209,
    POLLING_TIMEOUT = 210,
};

struct Options options = {.connections = 16, .window = 1, .size = 128, .queues = 8, .topics = 1, .tags = 1, .warm = 1,
                          .seconds = 5, .broker = "broker-a", .subscription = "*", .filter = "TAG", .at_once = 256};
int64_t now_ns;

static Connection *connections;
static int connection_count;
static Slot *slots;     /* a connection owns `window` of them from `first_slot` on */
static int *free_slots; /* a stack for each connection, at the same place */
static int slot_count, epoll_fd, timer_fd = -1;
static volatile sig_atomic_t told; /* to go on to the measured time, or to end it */
static int shaking; /* connections whose TLS handshake is not over */

static bool measuring, sending, stopped;
static int64_t tokens;                         /* sends that --rate allows by now */
static int64_t next_read_ns;                   /* when --read-rate allows the next pull */
static int64_t issued, owed, last_answer_ns;   /* owed: requests that must be answered soon: not what consumers wait for */
static int64_t sent_from_start, delivered_from_start, popped_from_start, errors;
static int readers_left;
static struct {
    int64_t requests, sent, scanned, matched, read, read_bytes, delivered, acked;
} measured;
static Histogram *latency[IDLER];

_Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

uint32_t big32(const char *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return ntohl(v);
}

uint64_t big64(const char *p) { return (uint64_t)big32(p) << 32 | big32(p + 4); }

void put_big32(char *p, uint32_t v) {
    v = htonl(v);
    memcpy(p, &v, 4);
}

void put_big64(char *p, uint64_t v) {
    put_big32(p, (uint32_t)(v >> 32));
    put_big32(p + 4, (uint32_t)v);
}

/* ---- requests ---- */

static void watch(Connection *c, bool writable) {
    struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
}

static void flush_out(Connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->leaving + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            if (!c->waits) watch(c, true);
            c->waits = true;
            return;
        }
        if (n < 0) fail("send: %s", strerror(errno));
        c->out_sent += (size_t)n;
    }
    c->out_length = c->out_sent = 0;
    if (c->tls) tls_left(c);
    if (c->waits) watch(c, false);
    c->waits = false;
}

static bool all_issued(void) { return options.messages && issued >= options.messages; }

static bool acks_left(const Connection *c) { return c->popped->next < c->popped->count; }

static bool may_issue(const Connection *c) {
    if (stopped || c->done || c->in_flight >= c->window) return false;
    if (c->role == SENDER && options.poisson) return sending && due_ns() <= now_ns;
    if (c->role == SENDER) return sending && !all_issued() && (!options.rate || tokens > 0);
    if (c->role == READER && options.mode == SEND && options.read_rate) return measuring && next_read_ns <= now_ns;
    if (c->role == READER) return options.mode == PULL ? sending && !all_issued() : measuring;
    if (c->role == POPPER && !sending) return false;
    if (c->role == POPPER) return acks_left(c) || !c->in_flight;
    return true;
}

static char *build(Connection *c, char *at, uint32_t opaque) {
    if (c->role == CONSUMER) {
        if (c->offset >= 0) return build_pull(c, at, opaque);
        owed++;
        return build_ask_end(c, at, opaque);
    }
    if (c->role == POPPER && !acks_left(c)) return build_pop(c, at, opaque);
    owed++;
    if (c->role == POPPER) return build_ack(c, at, opaque);
    if (c->role == READER) {
        issued++;
        if (options.read_rate) next_read_ns += (int64_t)(READ_BATCH * 1e9 / options.read_rate);
        return build_pull(c, at, opaque);
    }
    if (c->role == SENDER) {
        issued += options.batch;
        tokens--;
    }
    return build_send(c, at, opaque);
}

/* Fill the window of a connection again; one write. */
static void issue(Connection *c) {
    if (c->out_length || c->shaking) return;
    now_ns = clock_ns();
    char *at = build_commits(c, c->out);
    while (may_issue(c)) {
        Slot *slot = &slots[free_slots[c->first_slot + c->window - 1 - c->in_flight]];
        slot->generation = (slot->generation + 1) % (uint32_t)(OPAQUE_SPAN / slot_count);
        slot->sent_ns = now_ns;
        if (c->role == SENDER && options.poisson) {
            slot->sent_ns = due_ns();
            next_arrival();
        }
        uint32_t number = slot->generation * (uint32_t)slot_count + (uint32_t)(slot - slots);
        at = build(c, at, OPAQUE_BASE + number);
        c->in_flight++;
    }
    c->out_length = (size_t)(at - c->out);
    c->leaving = c->out;
    if (c->tls) {
        tls_seal(c, c->out_length);
        c->out_length = tls_leaving(c, &c->leaving);
    }
    flush_out(c);
}

/* When a timer has to wake us again for what --poisson and --read-rate have to send. */
static void wake_later(void) {
    int64_t at_ns = options.poisson && sending ? due_ns() : INT64_MAX;
    if (options.read_rate && measuring && next_read_ns < at_ns) at_ns = next_read_ns;
    if (at_ns == INT64_MAX) return;
    now_ns = clock_ns();
    /* What is due has no connection with room: an answer goes on with it, or we look again. */
    if (at_ns <= now_ns) at_ns = now_ns + LOOK_AGAIN_NS;
    struct itimerspec at = {.it_value = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000}};
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL)) fail("timerfd: %s", strerror(errno));
}

static bool sends_due(void) { return options.poisson ? due_ns() <= now_ns : tokens > 0; }

/* The time of the next sends has come: connections that have room take them in turn. */
static void tick(void) {
    static int next;
    uint64_t due = 0;
    if (read(timer_fd, &due, sizeof due) != sizeof due && errno != EAGAIN) fail("timerfd: %s", strerror(errno));
    now_ns = clock_ns();
    int64_t most = (int64_t)options.connections * options.window;
    tokens += (int64_t)due;
    if (tokens > most) tokens = most;
    for (int i = 0; i < options.connections && sends_due(); i++) {
        next = (next + 1) % options.connections;
        issue(&connections[next]);
    }
    if (!options.read_rate && !options.poisson) return;
    for (int i = 0; options.mode == SEND && i < options.readers; i++) issue(&connections[options.connections + i]);
    wake_later();
}

/* ---- answers ---- */

static void delivered(const char *body, size_t length) {
    if (length < 8) fail("a message of %zu bytes was delivered that nobody sent", length);
    delivered_from_start++;
    if (!measuring) return;
    measured.delivered++;
    took(latency[CONSUMER], now_ns - (int64_t)big64(body));
}

/* A reader of a pull row: its queue again and again. */
static void walk_again(Connection *c, const Answer *a, int64_t count) {
    int64_t next = ext_int(a, "nextBeginOffset"), scanned = next - c->offset;
    c->offset = next + (int64_t)options.batch * options.tags > ext_int(a, "maxOffset") ? 0 : next;
    if (!measuring) return;
    measured.scanned += scanned;
    measured.matched += count;
}

/* A reader beside sends: each queue once. */
static void walk_on(Connection *c, const Answer *a, int64_t count) {
    c->offset = ext_int(a, "nextBeginOffset");
    if (measuring) {
        measured.read += count;
        measured.read_bytes += (int64_t)a->body_length;
    }
    if (c->offset < ext_int(a, "maxOffset")) return;
    c->offset = 0;
    if (++c->queue < options.queues) return;
    c->queue = 0;
    if (options.read_rate) return;
    c->done = true;
    readers_left--;
}

static void take_pop(Connection *c, const Answer *a, int64_t took_ns) {
    c->popped->asked = false;
    if (a->code) return;
    take_popped(c, a);
    popped_from_start += c->popped->count;
    if (!measuring) return;
    measured.requests++;
    took(latency[POPPER], took_ns);
}

static bool accepted(const Connection *c, int code) {
    if (c->role == POPPER && c->popped->asked && (code == POLLING_FULL || code == POLLING_TIMEOUT || code == PULL_NOT_FOUND))
        return true;
    if (c->role == READER) return code == 0 || (code == PULL_RETRY_IMMEDIATELY && strcmp(options.subscription, "*"));
    if (c->role == CONSUMER && c->offset >= 0)
        return code == 0 || code == PULL_NOT_FOUND || code == PULL_RETRY_IMMEDIATELY;
    return code == 0;
}

/* The message or messages of an answer that is one to this connection's request. */
static void take_content(Connection *c, const Answer *a, int64_t took_ns) {
    if (c->role == SENDER || c->role == IDLER) {
        sent_from_start += options.batch;
        if (options.transactions) take_half(c, a);
        c->done = c->role == IDLER;
        if (measuring) measured.sent += options.batch;
    } else if (c->role == READER) {
        int64_t count = a->code ? 0 : count_records(a, NULL);
        (options.mode == PULL ? walk_again : walk_on)(c, a, count);
    } else if (c->role == POPPER) {
        if (c->popped->asked) take_pop(c, a, took_ns);
        else if (measuring) measured.acked++;
        return;
    } else if (c->offset < 0) {
        c->offset = ext_int(a, "offset");
        return;
    } else {
        if (!a->code) count_records(a, delivered);
        c->offset = ext_int(a, "nextBeginOffset");
    }
    if (!measuring) return;
    if (c->role == SENDER || c->role == READER) took(latency[c->role], took_ns);
    if (c->role == (options.mode == SEND ? SENDER : options.mode == PULL ? READER : CONSUMER)) measured.requests++;
}

static void take_answer(Connection *c, const char *frame, size_t length) {
    Answer a = parse_answer(frame, length);
    int64_t number = a.opaque - OPAQUE_BASE, slot = number % slot_count;
    if (!(a.flag & 1) || number < 0 || slot < c->first_slot || slot >= c->first_slot + c->window ||
        number / slot_count != slots[slot].generation || !slots[slot].sent_ns)
        fail("not an answer to a request in flight: opaque %" PRId64 ", flag %" PRId64, a.opaque, a.flag);
    int64_t took_ns = now_ns - slots[slot].sent_ns;
    slots[slot].sent_ns = 0;
    c->in_flight--;
    free_slots[c->first_slot + c->window - 1 - c->in_flight] = (int)slot;
    if (c->role == POPPER ? !c->popped->asked : c->role != CONSUMER || c->offset < 0) owed--;
    last_answer_ns = now_ns;
    if (accepted(c, a.code)) {
        take_content(c, &a, took_ns);
    } else if (!errors++) {
        fprintf(stderr, "load: refused with code %d: %.*s\n", a.code, (int)(a.body - frame - 8), frame + 8);
    }
}

/* All whole answers that are in the buffer. */
static void take_answers(Connection *c) {
    now_ns = clock_ns();
    size_t at = 0;
    while (c->in_length - at >= 8) {
        size_t length = (size_t)big32(c->in + at) + 4;
        if (length < 8 || length > c->in_size) fail("an answer of %zu bytes", length);
        if (c->in_length - at < length) break;
        take_answer(c, c->in + at, length);
        at += length;
    }
    c->in_length -= at;
    if (at && c->in_length) memmove(c->in, c->in + at, c->in_length);
}

/* The server's part of a handshake; its requests leave when it is over. */
static void shake(Connection *c) {
    c->shaking = !tls_handshake(c);
    if (!c->shaking) shaking--;
    last_answer_ns = clock_ns();
    c->out_length = tls_leaving(c, &c->leaving);
    flush_out(c);
}

static void receive_sealed(Connection *c, const char *bytes, size_t length) {
    tls_arrived(c, bytes, length);
    if (c->shaking) shake(c);
    if (c->shaking) return;
    size_t room, n;
    do {
        room = c->in_size - c->in_length;
        n = tls_open(c, c->in + c->in_length, room);
        c->in_length += n;
        take_answers(c);
    } while (n == room);
}

static void receive(Connection *c) {
    static char sealed[SEALED_BYTES];
    char *into = c->tls ? sealed : c->in + c->in_length;
    ssize_t n = recv(c->fd, into, c->tls ? sizeof sealed : c->in_size - c->in_length, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("the server closed a connection: %s", n ? strerror(errno) : "end of stream");
    if (c->tls) {
        receive_sealed(c, sealed, (size_t)n);
    } else {
        c->in_length += (size_t)n;
        take_answers(c);
    }
    issue(c);
}

/* ---- the run ---- */

/* An address of this machine has no more ports: each PORTS_OF_ADDRESS connections come from another one. */
static void bind_elsewhere(int fd, int number) {
    int one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)number)};
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&from, sizeof from)) fail("bind: %s", strerror(errno));
}

static void open_connection(Role role, int number) {
    Connection *c = &connections[connection_count++];
    c->role = role;
    c->window = role == SENDER || role == POPPER || (role == READER && options.mode == PULL) ? options.window : 1;
    c->popped = role == POPPER ? calloc(1, sizeof *c->popped) : NULL;
    c->halves = options.transactions ? calloc((size_t)c->window, sizeof *c->halves) : NULL;
    c->first_slot = slot_count;
    for (int i = 0; i < c->window; i++, slot_count++) free_slots[slot_count] = slot_count;
    c->shard = number % options.port_count;
    c->queue = role == READER && options.mode == SEND ? 0 : number / options.port_count % options.queues;
    c->group = number / options.queues;
    int of = role == IDLER ? options.idle : options.connections;
    c->topic = of ? (int)((int64_t)number * options.topics / of) % options.topics : 0;
    c->offset = role == CONSUMER ? -1 : 0;
    c->in_size = role == SENDER ? SEND_BYTES : role == IDLER ? IDLE_BYTES : PULL_BYTES;
    c->in = malloc(c->in_size);
    c->out = malloc((size_t)c->window * request_size(role) + halves_size(c->window));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.ports[c->shard]),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (role == IDLER && options.idle > PORTS_OF_ADDRESS) bind_elsewhere(c->fd, number / PORTS_OF_ADDRESS);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connection %d: %s", connection_count, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
    if (!options.tls) return;
    tls_begin(c);
    c->shaking = true;
    shaking++;
    c->out_length = tls_leaving(c, &c->leaving);
    flush_out(c);
}

static void tell(int number) {
    (void)number;
    told = 1;
}

static bool nothing_owed(void) { return !owed && !shaking; }
static bool all_sent(void) { return all_issued() && !owed; }
static bool warm(void) { return told || all_sent(); }
static bool all_read(void) { return options.readers && options.mode == SEND && !readers_left; }
static bool measured_all(void) { return told || (options.messages ? all_sent() : all_read()); }
static bool all_delivered(void) {
    int64_t groups = (options.readers + options.queues - 1) / options.queues;
    return delivered_from_start >= sent_from_start * groups;
}

/* Serve until `deadline_ns`, or until `over`. */
static void serve(int64_t deadline_ns, bool (*over)(void)) {
    struct epoll_event ready[256];
    last_answer_ns = clock_ns();
    while (!over() && (now_ns = clock_ns()) < deadline_ns) {
        if ((owed || shaking) && now_ns - last_answer_ns > (int64_t)STALL_MS * 1000000)
            fail("no answer for %d s; %" PRId64 " requests in flight, %d handshakes", STALL_MS / 1000, owed, shaking);
        int64_t left_ms = (deadline_ns - now_ns) / 1000000 + 1;
        int count = epoll_wait(epoll_fd, ready, 256, left_ms < 1000 ? (int)left_ms : 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            Connection *c = ready[i].data.ptr;
            if (!c) {
                tick();
                continue;
            }
            if (ready[i].events & EPOLLOUT) flush_out(c);
            if (ready[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
    }
}

static int64_t later(double seconds) { return clock_ns() + (int64_t)(seconds * 1e9); }

static void await(bool (*over)(void), const char *what) {
    serve(later(STALL_MS / 1e3), over);
    if (!over()) fail("%s within %d s", what, STALL_MS / 1000);
}

static Role main_role(void) { return options.mode == PULL ? READER : options.mode == POP ? POPPER : SENDER; }

/* Open all connections. Each idle one has sent once and each consumer knows its offset when this returns. */
static void prepare(void) {
    readers_left = options.readers;
    for (int i = 0; i < options.connections; i++) open_connection(main_role(), i);
    for (int i = 0; i < options.readers; i++) open_connection(options.mode == TAIL ? CONSUMER : READER, i);
    int first = connection_count;
    for (int i = options.connections; i < first; i++) issue(&connections[i]);
    await(nothing_owed, "not all consumers learned where their queue ends");
    for (int i = 0; i < options.idle; i++) {
        open_connection(IDLER, i);
        if ((i + 1) % options.at_once && i + 1 < options.idle) continue;
        for (; first < connection_count; first++) issue(&connections[first]);
        await(nothing_owed, "not all idle connections had the answer to their one send");
    }
    if (!options.rate && !options.read_rate) return;
    struct itimerspec at = {.it_value.tv_nsec = 1};
    if (options.rate && !options.poisson) at.it_interval.tv_nsec = (long)(1e9 / options.rate);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer_fd < 0 || timerfd_settime(timer_fd, 0, &at, NULL) || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &e))
        fail("timerfd: %s", strerror(errno));
}

static void start_all(void) {
    for (int i = 0; i < connection_count; i++) issue(&connections[i]);
}

static void run(void) {
    prepare();
    arrivals_begin();
    sending = true;
    start_all();
    if (options.poisson) wake_later();
    if (!options.messages) serve(later(options.warm), warm);
    told = 0;
    double own = own_cpu(), server = server_cpu(), machine = machine_cpu();
    int64_t began = clock_ns();
    measuring = true;
    next_read_ns = began;
    start_all();
    if (options.read_rate) wake_later();
    serve(options.messages ? INT64_MAX : later(options.seconds), measured_all);
    measuring = false;
    double late_ms = options.poisson ? behind_ms() : 0;
    double wall = (double)(clock_ns() - began) / 1e9;
    own = own_cpu() - own;
    server = server_cpu() - server;
    double other = machine_cpu() - machine - server - own;
    stopped = true;
    await(nothing_owed, "not all requests were answered");
    for (int i = 0; i < connection_count; i++)
        if (connections[i].half_count || connections[i].out_length) fail("a connection did not take all requests");
    stopped = options.mode != TAIL; /* consumers go on */
    sending = false;
    if (options.mode == TAIL && !errors) {
        start_all();
        await(all_delivered, "not all messages that were acknowledged were delivered");
    }
    int64_t messages = options.mode == SEND ? measured.sent : options.mode == PULL ? measured.scanned : options.mode == POP ? measured.acked : measured.delivered;
    if (!messages && options.connections) fail("nothing was answered in %.1f s", wall);
    double cost_of = (double)(messages + measured.read > 0 ? messages + measured.read : 1);
    const Histogram *main_latency = latency[options.mode == TAIL ? CONSUMER : main_role()];
    printf("{\"seconds\":%.4f,\"requests\":%" PRId64 ",\"messages\":%" PRId64 ",\"sent_from_start\":%" PRId64 ","
           "\"popped\":%" PRId64 ",\"matched\":%" PRId64 ",\"read\":%" PRId64 ",\"read_mb\":%.1f,\"errors\":%" PRId64 ",",
           wall, measured.requests, messages, sent_from_start, popped_from_start, measured.matched, measured.read,
           (double)measured.read_bytes / 1e6, errors);
    printf("\"per_second\":%.1f,\"server_cpu_us\":%.4f,\"server_cores\":%.4f,\"load_cores\":%.4f,\"other_cores\":%.4f,"
           "\"load_cpu_us\":%.4f,\"memory_mb\":%.1f,",
           (double)messages / wall, server * 1e6 / cost_of, server / wall, own / wall, other > 0 ? other / wall : 0,
           own * 1e6 / cost_of, server_memory_mb());
    printf("\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f,\"send_p99_ms\":%.4f,\"behind_ms\":%.4f}\n", quantile_ms(main_latency, 0.5),
           quantile_ms(main_latency, 0.99), quantile_ms(main_latency, 0.999), quantile_ms(main_latency, 1), quantile_ms(latency[SENDER], 0.99), late_ms);
}

/* ---- options ---- */

static int numbers(char *text, int *into, int most) {
    int count = 0;
    for (char *p = strtok(text, ","); p; p = strtok(NULL, ",")) {
        if (count == most) fail("more than %d numbers: %s", most, p);
        into[count++] = atoi(p);
    }
    return count;
}

static void read_option(const char *name, char *value) {
    const struct {
        const char *name;
        int *into;
    } ints[] = {{"--queues", &options.queues}, {"--connections", &options.connections}, {"--window", &options.window},
                {"--size", &options.size}, {"--batch", &options.batch}, {"--topics", &options.topics},
                {"--tags", &options.tags}, {"--readers", &options.readers}, {"--idle", &options.idle},
                {"--transactions", &options.transactions}, {"--delay-least", &options.delay_least},
                {"--delay-most", &options.delay_most}, {"--tls", &options.tls}, {"--at-once", &options.at_once}, {"--poisson", &options.poisson}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (!strcmp(name, ints[i].name)) {
            *ints[i].into = atoi(value);
            return;
        }
    if (!strcmp(name, "--topic")) options.topic = value;
    else if (!strcmp(name, "--read-topic")) options.read_topic = value;
    else if (!strcmp(name, "--broker")) options.broker = value;
    else if (!strcmp(name, "--subscription")) options.subscription = value;
    else if (!strcmp(name, "--filter")) options.filter = value;
    else if (!strcmp(name, "--access-key")) options.access_key = value;
    else if (!strcmp(name, "--secret-key")) options.secret_key = value;
    else if (!strcmp(name, "--warm")) options.warm = atof(value);
    else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
    else if (!strcmp(name, "--rate")) options.rate = atof(value);
    else if (!strcmp(name, "--read-rate")) options.read_rate = atof(value);
    else if (!strcmp(name, "--frame")) options.frame = value;
    else if (!strcmp(name, "--messages")) options.messages = atoll(value);
    else if (!strcmp(name, "--pids")) options.pid_count = numbers(value, options.pids, MAX_PIDS);
    else fail("unknown option %s", name);
}

static void check_options(const char *mode) {
    if (!strcmp(mode, "send")) options.mode = SEND;
    else if (!strcmp(mode, "pull")) options.mode = PULL;
    else if (!strcmp(mode, "tail")) options.mode = TAIL;
    else if (!strcmp(mode, "pop")) options.mode = POP;
    else fail("the mode is send, pull, tail or pop, not %s", mode);
    if (options.mode == POP) options.window = POP_BATCH;
    if (!options.batch) options.batch = options.mode == PULL ? 32 : 1;
    if (!options.topic) fail("--topic is missing");
    if (options.port_count < 1) fail("no port");
    if (options.queues < 1 || options.queues > MAX_QUEUES) fail("--queues is 1 to %d", MAX_QUEUES);
    if (options.topics < 1 || options.topics > MAX_TOPICS) fail("--topics is 1 to %d", MAX_TOPICS);
    if (options.tags < 1 || options.tags > MAX_TAGS) fail("--tags is 1 to %d", MAX_TAGS);
    if (options.window < 1 || options.size < 1 || options.batch < 1 || options.connections < 0 || options.readers < 0 ||
        options.idle < 0 || options.rate < 0 || options.at_once < 1)
        fail("a number is too small");
    if (options.mode == TAIL && (options.readers < 1 || options.readers % options.queues || options.size < 8 ||
                                 options.batch > 1 || options.topics > 1))
        fail("tail needs --readers, a multiple of --queues; a --size of 8 or more; no batches and one topic");
    if (options.mode != SEND && (options.idle || options.port_count > 1)) fail("--idle and several ports are for send");
    if (options.delay_least < 0 || options.delay_most < options.delay_least) fail("--delay-most is not below --delay-least");
    if ((options.transactions || options.delay_most) && (options.mode != SEND || options.batch > 1 || options.idle))
        fail("--transactions and --delay-most are for single sends");
    if (options.mode == POP && (options.readers || options.messages)) fail("--readers and --messages are not for pop");
    if (options.mode == PULL && options.readers) fail("--readers is not for pull");
    if (!options.access_key != !options.secret_key) fail("--access-key and --secret-key belong together");
    if (options.poisson && (options.mode != SEND || !options.rate || options.messages))
        fail("--poisson is for sends at a --rate, for a time");
    if (options.read_rate && (options.mode != SEND || !options.readers || (options.rate && !options.poisson)))
        fail("--read-rate is for --readers beside sends, which come at random or in closed loops");
    if (options.frame && (options.mode == TAIL || options.access_key || options.transactions || options.delay_most))
        fail("--frame holds all of a send: it is not signed, stamped, timed or a half");
    if (options.mode == SEND && options.readers && !options.read_topic) fail("--readers need --read-topic");
}

int main(int argc, char **argv) {
    if (argc < 3 || argc % 2 == 0) fail("usage: load send|pull|tail|pop PORT[,PORT] --topic T [--option value]…");
    options.port_count = numbers(argv[2], options.ports, MAX_SHARDS);
    for (int i = 3; i + 1 < argc; i += 2) read_option(argv[i], argv[i + 1]);
    check_options(argv[1]);
    size_t most = (size_t)options.connections + (size_t)options.readers + (size_t)options.idle;
    size_t most_slots = (size_t)options.connections * (size_t)options.window + (size_t)options.readers + (size_t)options.idle;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < most + 16) fail("%zu connections need ulimit -n %zu; it is %zu", most, most + 16, (size_t)files.rlim_max);
    connections = calloc(most, sizeof *connections);
    slots = calloc(most_slots, sizeof *slots);
    free_slots = calloc(most_slots, sizeof *free_slots);
    for (int role = 0; role < IDLER; role++) latency[role] = new_histogram();
    epoll_fd = epoll_create1(0);
    if (options.frame) read_frame();
    else make_send_template();
    signal(SIGUSR1, tell);
    run();
    return errors ? 1 : 0;
}
