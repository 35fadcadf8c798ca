/*
 * The load generator of the benchmark: one thread, epoll, no dependencies.
 *
 *   load send|pull PORT --topic T [options]      one line of JSON on stdout; exit 1 and a reason on failure
 *
 *   --broker NAME       broker name in the headers (broker-a)   --queues N     spread over N queues, 1..10 (8)
 *   --connections N     (16)                                    --window N     requests in flight on each (1)
 *   --size N            body bytes (128)                        --batch N      messages a pull (32)
 *   --warm S            not measured, first (1)                 --seconds S    measured (5)
 *   --messages N        instead of a time: exactly N sends      --pids A,B     processes whose CPU is the server's
 *
 * A connection is a closed loop of `window` requests: each answer is followed by the next request, all that one
 * read allows in one write. Requests are those of the Java client with its default JSON header: 310 with
 * UNIQ_KEY, WAIT and TAGS; 11 with sysFlag 4 (subscription included, no suspend). A pulling connection walks one
 * queue and begins again at 0 when fewer than a batch is left. Every answer is checked (response flag, code 0, an
 * opaque that is in flight; a pull: whole records with the right magic); all requests must have been answered
 * when the program ends. The CPU figures are utime + stime of all threads between the two ends of the
 * measured time, from /proc/PID/stat and getrusage.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    RECEIVE_BYTES = 2 << 20, /* one whole answer must fit */
    MAX_QUEUES = 10,         /* the queue id is one digit of the template */
    MAX_PIDS = 16,
    OPAQUE_BASE = 100000000, /* nine digits, always */
    OPAQUE_SPAN = 800000000,
    STALL_MS = 20000,
    HISTOGRAM_SUB = 64, /* buckets for each power of two: 1.6 % wide */
    HISTOGRAM_SIZE = 40 * HISTOGRAM_SUB,
    RECORD_MAGIC_V1 = -626843481,
    RECORD_MAGIC_V2 = -626843477,
};

typedef struct {
    int fd;
    char *in;
    size_t in_length;
    char *out; /* what the socket has not taken yet */
    size_t out_length, out_sent;
    bool waits; /* for the socket to take more */
    int queue;
    int64_t offset; /* of the next pull */
    int in_flight;
} Connection;

typedef struct {
    int64_t sent_ns; /* 0: free */
    uint32_t generation;
} Slot;

static struct {
    bool pull;
    int port, connections, window, size, queues, batch;
    double warm, seconds;
    int64_t messages;
    const char *topic, *broker;
    int pids[MAX_PIDS], pid_count;
} options = {.connections = 16, .window = 1, .size = 128, .queues = 8, .batch = 32,
             .warm = 1, .seconds = 5, .broker = "broker-a"};

static struct {
    char *bytes;
    size_t length;
    size_t opaque_at, queue_at, born_at, key_at;
} template;

static Connection *connections;
static Slot *slots;     /* connection i owns [i * window, (i + 1) * window) */
static int *free_slots; /* a stack for each connection, at the same place */
static int epoll_fd;
static uint32_t opaque_cycle;

static bool measuring, issuing = true;
static int64_t issued, answered, total_messages; /* from the start */
static int64_t requests, messages;               /* while measuring */
static int64_t errors;
static int64_t histogram[HISTOGRAM_SIZE];
static int64_t now_ns;

static _Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint32_t big32(const char *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return ntohl(v);
}

static void put_big32(char *p, uint32_t v) {
    v = htonl(v);
    memcpy(p, &v, 4);
}

/* ---- latency ---- */

static int bucket(int64_t ns) {
    uint64_t v = ns < 1 ? 1 : (uint64_t)ns;
    int top = 63 - __builtin_clzll(v);
    int sub = top < 6 ? (int)(v << (6 - top)) : (int)(v >> (top - 6));
    int b = top * HISTOGRAM_SUB + (sub - HISTOGRAM_SUB);
    return b < HISTOGRAM_SIZE ? b : HISTOGRAM_SIZE - 1;
}

static double quantile_ms(double q) {
    int64_t count = 0, seen = 0;
    for (int i = 0; i < HISTOGRAM_SIZE; i++) count += histogram[i];
    for (int i = 0; i < HISTOGRAM_SIZE; i++) {
        seen += histogram[i];
        if (count && (double)seen >= q * (double)count) {
            double base = (double)(1ull << (i / HISTOGRAM_SUB));
            return base * (1 + (i % HISTOGRAM_SUB + 0.5) / HISTOGRAM_SUB) / 1e6;
        }
    }
    return 0;
}

/* ---- CPU ---- */

static double server_cpu(void) {
    double ticks = 0;
    for (int i = 0; i < options.pid_count; i++) {
        char path[64], text[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", options.pids[i]);
        FILE *f = fopen(path, "r");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f) fclose(f);
        text[n] = 0;
        char *rest = strrchr(text, ')');
        unsigned long user, system;
        if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            fail("the server's process %d is gone", options.pids[i]);
        ticks += (double)(user + system);
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static double own_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Seconds that all cores were busy, with all that runs on the machine. */
static double machine_cpu(void) {
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    FILE *f = fopen("/proc/stat", "r");
    if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq,
                     &soft, &steal) != 8)
        fail("/proc/stat can't be read");
    fclose(f);
    return (double)(user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}

/* ---- requests ---- */

static void make_send_template(void) {
    char head[4096];
    char prefix[24];
    snprintf(prefix, sizeof prefix, "7F000001%04X%08X", (unsigned)getpid() & 0xffff, (unsigned)wall_ms());
    int n = snprintf(head, sizeof head,
                     "{\"code\":310,\"extFields\":{\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"Q\","
                     "\"f\":\"0\",\"g\":\"BORN_TIMESTAM\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001%s_UNIQUE_KEY_\\u0002WAIT\\u0001true"
                     "\\u0002TAGS\\u0001TagA\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\",\"n\":\"%s\"},\"flag\":0,"
                     "\"language\":\"JAVA\",\"opaque\":OOOOOOOOO,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                     options.topic, options.queues, prefix, options.broker);
    if (n >= (int)sizeof head) fail("the topic or broker name is too long");
    template.length = 8 + (size_t)n + (size_t)options.size;
    template.bytes = malloc(template.length);
    put_big32(template.bytes, (uint32_t)template.length - 4);
    put_big32(template.bytes + 4, (uint32_t)n);
    memcpy(template.bytes + 8, head, (size_t)n);
    for (int i = 0; i < options.size; i++) template.bytes[8 + n + i] = (char)('a' + i * 7 % 26);
    template.queue_at = 8 + (size_t)(strstr(head, "\"e\":\"Q\"") + 5 - head);
    template.born_at = 8 + (size_t)(strstr(head, "BORN_TIMESTAM") - head);
    template.key_at = 8 + (size_t)(strstr(head, "_UNIQUE_KEY_") - head);
    template.opaque_at = 8 + (size_t)(strstr(head, "OOOOOOOOO") - head);
}

static void digits(char *at, int count, uint64_t value) {
    while (count--) {
        at[count] = (char)('0' + value % 10);
        value /= 10;
    }
}

static char *build_send(Connection *c, char *at, uint32_t opaque) {
    static int64_t born_ns, born_ms;
    if (now_ns - born_ns > 1000000) {
        born_ns = now_ns;
        born_ms = wall_ms();
    }
    memcpy(at, template.bytes, template.length);
    digits(at + template.opaque_at, 9, opaque);
    at[template.queue_at] = (char)('0' + c->queue);
    c->queue = c->queue + 1 < options.queues ? c->queue + 1 : 0;
    digits(at + template.born_at, 13, (uint64_t)born_ms);
    uint64_t key = (uint64_t)issued;
    for (int i = 11; i >= 0; i--, key >>= 4) at[template.key_at + (size_t)i] = "0123456789ABCDEF"[key & 15];
    return at + template.length;
}

static char *build_pull(Connection *c, char *at, uint32_t opaque) {
    int n = sprintf(at + 8,
                    "{\"code\":11,\"extFields\":{\"bname\":\"%s\",\"commitOffset\":\"0\",\"consumerGroup\":\"bench_consumer\","
                    "\"expressionType\":\"TAG\",\"maxMsgNums\":\"%d\",\"queueId\":\"%d\",\"queueOffset\":\"%" PRId64 "\","
                    "\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"20000\",\"sysFlag\":\"4\",\"topic\":\"%s\"},"
                    "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    options.broker, options.batch, c->queue, c->offset, options.topic, opaque);
    put_big32(at, (uint32_t)n + 4);
    put_big32(at + 4, (uint32_t)n);
    return at + 8 + n;
}

static void watch(Connection *c, bool writable) {
    struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
}

static void flush_out(Connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            if (!c->waits) watch(c, true);
            c->waits = true;
            return;
        }
        if (n < 0) fail("send: %s", strerror(errno));
        c->out_sent += (size_t)n;
    }
    c->out_length = c->out_sent = 0;
    if (c->waits) watch(c, false);
    c->waits = false;
}

/* Fill the window of a connection again; one write. */
static void issue(Connection *c) {
    if (c->out_length || !issuing) return;
    now_ns = clock_ns();
    int first = (int)(c - connections) * options.window;
    char *at = c->out;
    while (c->in_flight < options.window && (!options.messages || issued < options.messages)) {
        int slot = free_slots[first + options.window - 1 - c->in_flight];
        uint32_t all = (uint32_t)(options.connections * options.window);
        slots[slot].generation = (slots[slot].generation + 1) % opaque_cycle;
        slots[slot].sent_ns = now_ns;
        uint32_t opaque = OPAQUE_BASE + slots[slot].generation * all + (uint32_t)slot;
        at = options.pull ? build_pull(c, at, opaque) : build_send(c, at, opaque);
        c->in_flight++;
        issued++;
    }
    c->out_length = (size_t)(at - c->out);
    flush_out(c);
}

/* ---- answers ---- */

typedef struct {
    int code;
    int64_t opaque, flag;
    const char *ext, *body; /* JSON: the header; binary: its ext fields */
    size_t ext_length, body_length;
    bool binary;
} Answer;

static int64_t json_int(const char *header, size_t length, const char *name) {
    const char *p = memmem(header, length, name, strlen(name));
    if (!p) fail("an answer without %s: %.*s", name, (int)length, header);
    p += strlen(name);
    while (*p == ' ' || *p == '"') p++;
    return strtoll(p, NULL, 10);
}

static int64_t ext_int(const Answer *a, const char *name) {
    if (!a->binary) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\":", name);
        return json_int(a->ext, a->ext_length, quoted);
    }
    for (const char *p = a->ext, *end = p + a->ext_length; p + 6 < end;) {
        size_t key = (size_t)(((unsigned char)p[0] << 8) | (unsigned char)p[1]);
        size_t value = big32(p + 2 + key);
        if (key == strlen(name) && !memcmp(p + 2, name, key)) {
            char text[32] = {0};
            memcpy(text, p + 6 + key, value < 31 ? value : 31);
            return strtoll(text, NULL, 10);
        }
        p += 6 + key + value;
    }
    fail("an answer without %s", name);
}

static Answer parse(const char *frame, size_t length) {
    uint32_t word = big32(frame + 4);
    size_t header = word & 0xffffff;
    if (header + 8 > length) fail("an answer whose header is longer than its frame");
    const char *h = frame + 8;
    Answer a = {.body = h + header, .body_length = length - 8 - header, .binary = word >> 24 == 1};
    if (a.binary) {
        size_t remark = big32(h + 13);
        a.code = (int16_t)(((unsigned char)h[0] << 8) | (unsigned char)h[1]);
        a.opaque = (int32_t)big32(h + 5);
        a.flag = (int32_t)big32(h + 9);
        a.ext = h + 21 + remark;
        a.ext_length = header - 21 - remark;
    } else {
        a.ext = h;
        a.ext_length = header;
        a.code = (int)json_int(h, header, "\"code\":");
        a.opaque = json_int(h, header, "\"opaque\":");
        a.flag = json_int(h, header, "\"flag\":");
    }
    return a;
}

static int64_t count_records(const Answer *a) {
    int64_t count = 0;
    for (size_t at = 0; at < a->body_length; count++) {
        if (a->body_length - at < 8) fail("a torn record in a pull's answer");
        uint32_t size = big32(a->body + at);
        int32_t magic = (int32_t)big32(a->body + at + 4);
        if (magic != RECORD_MAGIC_V1 && magic != RECORD_MAGIC_V2) fail("a record with the magic %d", magic);
        if (size < 8 || size > a->body_length - at) fail("a record of %u bytes", size);
        at += size;
    }
    return count;
}

static void take_answer(Connection *c, const char *frame, size_t length) {
    Answer a = parse(frame, length);
    int first = (int)(c - connections) * options.window;
    int64_t all = (int64_t)options.connections * options.window;
    int64_t slot = (a.opaque - OPAQUE_BASE) % all;
    if (!(a.flag & 1) || a.opaque < OPAQUE_BASE || slot < first || slot >= first + options.window ||
        (a.opaque - OPAQUE_BASE) / all != slots[slot].generation || !slots[slot].sent_ns)
        fail("not an answer to a request in flight: opaque %" PRId64 ", flag %" PRId64, a.opaque, a.flag);
    int64_t took = now_ns - slots[slot].sent_ns, count = 1;
    slots[slot].sent_ns = 0;
    c->in_flight--;
    free_slots[first + options.window - 1 - c->in_flight] = (int)slot;
    answered++;
    if (a.code != 0) {
        if (!errors++) fprintf(stderr, "load: refused with code %d: %.*s\n", a.code, (int)(a.body - frame - 8), frame + 8);
        return;
    }
    if (options.pull) {
        count = count_records(&a);
        c->offset = ext_int(&a, "nextBeginOffset");
        if (c->offset + options.batch > ext_int(&a, "maxOffset")) c->offset = 0;
    }
    total_messages += count;
    if (measuring) {
        requests++;
        messages += count;
        histogram[bucket(took)]++;
    }
}

static void receive(Connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_length, RECEIVE_BYTES - c->in_length, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("the server closed a connection: %s", n ? strerror(errno) : "end of stream");
    c->in_length += (size_t)n;
    now_ns = clock_ns();
    size_t at = 0;
    while (c->in_length - at >= 8) {
        size_t length = (size_t)big32(c->in + at) + 4;
        if (length < 8 || length > RECEIVE_BYTES) fail("an answer of %zu bytes", length);
        if (c->in_length - at < length) break;
        take_answer(c, c->in + at, length);
        at += length;
    }
    c->in_length -= at;
    if (at && c->in_length) memmove(c->in, c->in + at, c->in_length);
    issue(c);
}

/* ---- the run ---- */

static void open_connection(int i) {
    Connection *c = &connections[i];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->in = malloc(RECEIVE_BYTES);
    c->out = malloc((size_t)options.window * (template.length + 2048));
    c->queue = i % options.queues;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
    for (int s = i * options.window; s < (i + 1) * options.window; s++) free_slots[s] = s;
}

/* Serve until `deadline_ns`, or until nothing is left to do. */
static void serve(int64_t deadline_ns) {
    struct epoll_event ready[256];
    int64_t last_answer = clock_ns(), before = answered;
    while ((now_ns = clock_ns()) < deadline_ns) {
        if (answered == issued && (!issuing || (options.messages && issued >= options.messages))) return;
        if (answered != before) {
            before = answered;
            last_answer = now_ns;
        } else if (now_ns - last_answer > (int64_t)STALL_MS * 1000000) {
            fail("no answer for %d s; %" PRId64 " requests in flight", STALL_MS / 1000, issued - answered);
        }
        int64_t left_ms = (deadline_ns - now_ns) / 1000000 + 1;
        int count = epoll_wait(epoll_fd, ready, 256, left_ms < 1000 ? (int)left_ms : 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            Connection *c = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT) flush_out(c);
            if (ready[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
    }
}

static int64_t later(double seconds) { return clock_ns() + (int64_t)(seconds * 1e9); }

static void run(void) {
    for (int i = 0; i < options.connections; i++) issue(&connections[i]);
    if (!options.messages) serve(later(options.warm));
    double own = own_cpu(), server = server_cpu(), machine = machine_cpu();
    int64_t began = clock_ns();
    measuring = true;
    serve(options.messages ? INT64_MAX : later(options.seconds));
    measuring = false;
    double wall = (double)(clock_ns() - began) / 1e9;
    own = own_cpu() - own;
    server = server_cpu() - server;
    double other = machine_cpu() - machine - server - own;
    issuing = false;
    serve(later(STALL_MS / 1e3));
    if (answered != issued) fail("%" PRId64 " requests were never answered", issued - answered);
    if (!messages) fail("nothing was answered in %.1f s", wall);
    printf("{\"seconds\":%.4f,\"requests\":%" PRId64 ",\"messages\":%" PRId64 ",\"messages_from_start\":%" PRId64 ","
           "\"errors\":%" PRId64 ",\"per_second\":%.1f,\"server_cpu_us\":%.4f,\"server_cores\":%.4f,\"load_cores\":%.4f,"
           "\"other_cores\":%.4f,\"load_cpu_us\":%.4f,\"p50_ms\":%.4f,\"p99_ms\":%.4f}\n",
           wall, requests, messages, total_messages, errors, (double)messages / wall, server * 1e6 / (double)messages,
           server / wall, own / wall,
           other > 0 ? other / wall : 0, own * 1e6 / (double)messages, quantile_ms(0.5), quantile_ms(0.99));
}

static void read_option(const char *name, char *value) {
    if (!strcmp(name, "--topic")) options.topic = value;
    else if (!strcmp(name, "--broker")) options.broker = value;
    else if (!strcmp(name, "--queues")) options.queues = atoi(value);
    else if (!strcmp(name, "--connections")) options.connections = atoi(value);
    else if (!strcmp(name, "--window")) options.window = atoi(value);
    else if (!strcmp(name, "--size")) options.size = atoi(value);
    else if (!strcmp(name, "--batch")) options.batch = atoi(value);
    else if (!strcmp(name, "--warm")) options.warm = atof(value);
    else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
    else if (!strcmp(name, "--messages")) options.messages = atoll(value);
    else if (!strcmp(name, "--pids")) {
        for (char *p = strtok(value, ","); p && options.pid_count < MAX_PIDS; p = strtok(NULL, ","))
            options.pids[options.pid_count++] = atoi(p);
    } else fail("unknown option %s", name);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc % 2 == 0) fail("usage: load send|pull PORT --topic T [--option value]…");
    options.pull = !strcmp(argv[1], "pull");
    options.port = atoi(argv[2]);
    for (int i = 3; i + 1 < argc; i += 2) read_option(argv[i], argv[i + 1]);
    if (!options.topic || options.queues < 1 || options.queues > MAX_QUEUES || options.connections < 1 ||
        options.window < 1 || options.size < 1 || (!options.pull && strcmp(argv[1], "send")))
        fail("bad options");
    int all = options.connections * options.window;
    opaque_cycle = (uint32_t)(OPAQUE_SPAN / all);
    connections = calloc((size_t)options.connections, sizeof *connections);
    slots = calloc((size_t)all, sizeof *slots);
    free_slots = calloc((size_t)all, sizeof *free_slots);
    epoll_fd = epoll_create1(0);
    if (!options.pull) make_send_template();
    for (int i = 0; i < options.connections; i++) open_connection(i);
    run();
    return errors ? 1 : 0;
}
