/* Transactions and pops: what the load generator does with halves, and with messages that are its own for a while. */
#define _GNU_SOURCE
#include "load.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    COMMIT_BYTES = 1024,
    OPAQUE = 1,          /* of commits, which nobody answers */
    QUEUE_AT = 12,       /* in a record */
    QUEUE_OFFSET_AT = 20,
    MIN_RECORD = 28,
    ID_OFFSET_DIGITS = 16, /* at the end of a message id */
    INVISIBLE_MS = 60000,
    WAIT_MS = 15000,
};

/* ---- transactions ---- */

size_t halves_size(int window) { return options.transactions ? (size_t)window * COMMIT_BYTES : 0; }

void take_half(Connection *c, const Answer *a) {
    Half *half = &c->halves[c->half_count++];
    ext_text(a, "msgId", half->id, sizeof half->id);
    size_t length = strlen(half->id);
    if (length < ID_OFFSET_DIGITS) fail("a half with the id %s", half->id);
    half->log_offset = strtoll(half->id + length - ID_OFFSET_DIGITS, NULL, 16);
    half->queue_offset = ext_int(a, "queueOffset");
}

static char *build_commit(const Half *half, char *at) {
    int n = sprintf(at + 8,
                    "{\"code\":37,\"extFields\":{%s\"bname\":\"%s\",\"commitLogOffset\":\"%" PRId64 "\",\"commitOrRollback\":\"8\","
                    "\"fromTransactionCheck\":\"false\",\"msgId\":\"%s\",\"producerGroup\":\"bench_producer\","
                    "\"topic\":\"%s\",\"tranStateTableOffset\":\"%" PRId64 "\",\"transactionId\":\"%s\"},\"flag\":2,"
                    "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    signed_fields(), options.broker, half->log_offset, half->id, options.topic, half->queue_offset, half->id, OPAQUE);
    return finish(at, n);
}

char *build_commits(Connection *c, char *at) {
    for (int i = 0; i < c->half_count; i++) at = build_commit(&c->halves[i], at);
    c->half_count = 0;
    return at;
}

/* ---- pops ---- */

/* A new one for each run: it begins at the first message. */
static const char *group(void) {
    static char name[64];
    if (!*name) snprintf(name, sizeof name, "bench_pop_%d_%" PRId64, getpid(), wall_ms());
    return name;
}

char *build_pop(Connection *c, char *at, uint32_t opaque) {
    c->popped->asked = true;
    int n = sprintf(at + 8,
                    "{\"code\":200050,\"extFields\":{%s\"bname\":\"%s\",\"bornTime\":\"%" PRId64 "\",\"consumerGroup\":\"%s\","
                    "\"exp\":\"*\",\"expType\":\"TAG\",\"initMode\":\"0\",\"invisibleTime\":\"%d\",\"maxMsgNums\":\"%d\","
                    "\"order\":\"false\",\"pollTime\":\"%d\",\"queueId\":\"-1\",\"topic\":\"%s\"},\"flag\":0,"
                    "\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    signed_fields(), options.broker, wall_ms(), group(), INVISIBLE_MS, POP_BATCH, WAIT_MS, options.topic, opaque);
    return finish(at, n);
}

/* startOffsetInfo: `retry queue offset` of each queue that gave something, with semicolons between them. */
static void take_starts(Popped *popped, char *text) {
    for (char *part = strtok(text, ";"); part; part = strtok(NULL, ";")) {
        int retry, queue, end = 0;
        if (sscanf(part, "%d %d %n", &retry, &queue, &end) < 2 || !end || retry || queue < 0 || queue >= MAX_QUEUES)
            fail("a pop that begins at %s", part);
        snprintf(popped->starts[queue], sizeof popped->starts[queue], "%s", part + end);
    }
}

void take_popped(Connection *c, const Answer *a) {
    char starts[512];
    Popped *popped = c->popped;
    ext_text(a, "popTime", popped->time, sizeof popped->time);
    ext_text(a, "invisibleTime", popped->invisible, sizeof popped->invisible);
    ext_text(a, "reviveQid", popped->revive_queue, sizeof popped->revive_queue);
    ext_text(a, "startOffsetInfo", starts, sizeof starts);
    memset(popped->starts, 0, sizeof popped->starts);
    take_starts(popped, starts);
    int64_t count = count_records(a, NULL);
    if (count < 1 || count > POP_BATCH) fail("a pop of %" PRId64 " messages", count);
    const char *record = a->body;
    for (int i = 0; i < count; i++, record += big32(record)) {
        int queue = big32(record) < MIN_RECORD ? -1 : (int)big32(record + QUEUE_AT);
        if (queue < 0 || queue >= MAX_QUEUES || !*popped->starts[queue]) fail("a popped message of queue %d", queue);
        popped->messages[i].queue = queue;
        popped->messages[i].offset = (int64_t)big64(record + QUEUE_OFFSET_AT);
    }
    popped->next = 0;
    popped->count = (int)count;
}

char *build_ack(Connection *c, char *at, uint32_t opaque) {
    Popped *popped = c->popped;
    int queue = popped->messages[popped->next].queue;
    int64_t offset = popped->messages[popped->next++].offset;
    int n = sprintf(at + 8,
                    "{\"code\":200051,\"extFields\":{%s\"bname\":\"%s\",\"consumerGroup\":\"%s\",\"extraInfo\":\"%s %s %s %s 0 %s "
                    "%d %" PRId64 "\",\"offset\":\"%" PRId64 "\",\"queueId\":\"%d\",\"topic\":\"%s\"},\"flag\":0,"
                    "\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    signed_fields(), options.broker, group(), popped->starts[queue], popped->time, popped->invisible, popped->revive_queue,
                    options.broker, queue, offset, offset, queue, options.topic, opaque);
    return finish(at, n);
}
