/* What the parts of the load generator share: see load.c for what it does. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_QUEUES = 10, /* the queue id is one digit of the template */
    MAX_SHARDS = 10, /* the same for the shard in the broker's name */
    MAX_TOPICS = 10000,
    MAX_TAGS = 26,
    MAX_PIDS = 80,
    POP_BATCH = 32, /* messages of a pop, at most */
    /* How wide the places are that are filled in. */
    OPAQUE_DIGITS = 9,
    BORN_DIGITS = 13,
    KEY_DIGITS = 12,
    TOPIC_DIGITS = 4,
};

/* What a connection does. */
typedef enum {
    SENDER,   /* a closed loop of sends */
    READER,   /* a closed loop of pulls */
    CONSUMER, /* long polling at the end of a queue */
    POPPER,   /* a closed loop of pops, and acknowledgements of each message */
    IDLER,    /* one send, then nothing */
} Role;

/* A half that is acknowledged, and not yet committed. */
typedef struct {
    int64_t queue_offset, log_offset;
    char id[40];
} Half;

/* What a consumer has popped last. */
typedef struct {
    bool asked; /* a pop is under way */
    char time[24], invisible[24], revive_queue[12], starts[MAX_QUEUES][24];
    int next, count; /* the next to be acknowledged, and how many there are */
    struct {
        int queue;
        int64_t offset;
    } messages[POP_BATCH];
} Popped;

typedef struct {
    int fd;
    Role role;
    int window, first_slot, shard;
    char *in, *out;
    char *leaving; /* what the socket has not taken yet: out, or what TLS made of it */
    size_t in_size, in_length, out_length, out_sent;
    struct ssl_st *tls; /* none: its bytes are plain */
    bool shaking;       /* its handshake is not over */
    bool waits;             /* for the socket to take more */
    int topic, queue, tag;  /* of the next request */
    int group;              /* of a consumer */
    int64_t offset;         /* of the next pull; a consumer's is -1 until it asked for the end of its queue */
    int in_flight;
    bool done;
    Half *halves;
    int half_count;
    Popped *popped;
} Connection;

typedef struct {
    int64_t sent_ns; /* 0: free */
    uint32_t generation;
} Slot;

typedef enum { SEND, PULL, TAIL, POP } Mode;

extern struct Options {
    Mode mode;
    int ports[MAX_SHARDS], port_count;
    int connections, readers, idle, window, size, queues, batch, topics, tags, transactions, delay_least, delay_most, tls, at_once, poisson;
    double warm, seconds, rate, read_rate;
    int64_t messages;
    char *frame, *topic, *read_topic, *broker, *subscription, *filter, *access_key, *secret_key;
    int pids[MAX_PIDS], pid_count;
} options;

extern int64_t now_ns;

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint32_t big32(const char *p);
uint64_t big64(const char *p);
void put_big32(char *p, uint32_t v);
void put_big64(char *p, uint64_t v);

/* load_requests.c */
void make_send_template(void);
size_t request_size(Role role); /* at most so many bytes */
/* Each writes a request to `at` and returns its end; the first one goes on to the next topic, queue and tag. */
char *build_send(Connection *c, char *at, uint32_t opaque);
char *build_pull(Connection *c, char *at, uint32_t opaque);
char *build_ask_end(Connection *c, char *at, uint32_t opaque);
/* The lengths before a header of so many bytes at at + 8, and its signature; returns its end. */
char *finish(char *at, int length);

void digits(char *at, int count, uint64_t value); /* decimal, with zeros in front */
void unique_key(char *at);                        /* KEY_DIGITS that no other message has */

/* load_frames.c */
void read_frame(void); /* of --frame */
size_t frame_size(void);
char *build_frame(const Connection *c, char *at, uint32_t opaque, uint64_t born_ms);

/* load_secure.c */
void tls_begin(Connection *c);
bool tls_handshake(Connection *c);              /* over? */
void tls_seal(Connection *c, size_t length);    /* so many bytes of `out` */
size_t tls_leaving(Connection *c, char **bytes); /* how many bytes have to leave */
void tls_left(Connection *c);                   /* all of them have */
void tls_arrived(Connection *c, const char *bytes, size_t length);
size_t tls_open(Connection *c, char *into, size_t most); /* plain bytes of what arrived; less than `most`: all of them */
const char *signed_fields(void); /* what stands first among the fields of a request that is to be signed */
void sign(char *header, size_t length, const char *body, size_t body_length); /* whose fields are in order */

/* load_answers.c */
typedef struct {
    int code;
    int64_t opaque, flag;
    const char *ext, *body; /* ext: JSON: the header; binary: its ext fields */
    size_t ext_length, body_length;
    bool binary;
} Answer;
Answer parse_answer(const char *frame, size_t length);
int64_t ext_int(const Answer *a, const char *name);
/* The text of an ext field goes to `into`, of `size` bytes. */
void ext_text(const Answer *a, const char *name, char *into, size_t size);
/* How many whole records the body holds; each goes to `each`, if there is one, with the start of its message's body. */
int64_t count_records(const Answer *a, void (*each)(const char *body, size_t length));

/* load_kinds.c */
size_t halves_size(int window); /* of all their commits, at most so many bytes */
void take_half(Connection *c, const Answer *a);
char *build_commits(Connection *c, char *at); /* of all halves that wait for it, one way, as the Java client does */
char *build_pop(Connection *c, char *at, uint32_t opaque);
void take_popped(Connection *c, const Answer *a);
char *build_ack(Connection *c, char *at, uint32_t opaque); /* of the next message */

/* load_arrivals.c */
void arrivals_begin(void);       /* the first send is due now */
int64_t due_ns(void);            /* when the next send is due */
void next_arrival(void);         /* that one leaves */
double behind_ms(void);          /* how late the next send is */

/* load_meter.c */
typedef struct Histogram Histogram;
Histogram *new_histogram(void);
void took(Histogram *h, int64_t ns);
double quantile_ms(const Histogram *h, double q); /* 0 where nothing was counted */
int64_t clock_ns(void);
int64_t wall_ms(void);
double server_cpu(void);
double server_memory_mb(void);
double own_cpu(void);
double machine_cpu(void);

#endif
