/* Requests: those of the Java client with its default JSON header. A send is a template with places to fill in. */
#define _GNU_SOURCE
#include "load.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ITEM_HEAD = 20, /* of a message in a batch: total size, magic, CRC, flag, body length */
    STAMP_BYTES = 8, /* at the front of a body that somebody waits for: the send's clock_ns */
    SUSPEND = 2,
    SUBSCRIPTION = 4,
    PREPARED = 4, /* of a send */
};

static struct {
    char *bytes;
    size_t length;
    size_t opaque_at, queue_at, born_at, key_at, topic_at, shard_at, tag_at, deliver_at;
    size_t body_at;                             /* of the first message */
    size_t item_size, item_key_at, item_tag_at; /* of the messages of a batch: from one to the next; in the first one */
} template;

/* Properties as they are stored: \1 and \2 stand between them. In JSON they are escaped. */
static int properties(char *at, size_t size, const char *key, bool escaped) {
    const char *is = escaped ? "\\u0001" : "\1", *ends = escaped ? "\\u0002" : "\2";
    int n = snprintf(at, size, "UNIQ_KEY%s%s%sWAIT%strue%sTAGS%sTagT%s", is, key, ends, is, ends, is, ends);
    if (options.transactions)
        n += snprintf(at + n, size - (size_t)n, "TRAN_MSG%strue%sPGROUP%sbench_producer%s", is, ends, is, ends);
    if (options.delay_most) n += snprintf(at + n, size - (size_t)n, "TIMER_DELIVER_MS%sDELIVER_AT_MS%s", is, ends);
    return n;
}

static size_t offset_of(const char *text, size_t length, const char *what) {
    const char *found = memmem(text, length, what, strlen(what));
    if (!found) fail("the template has no %s", what);
    return (size_t)(found - text);
}

static char *put_body(char *at) {
    for (int i = 0; i < options.size; i++) *at++ = (char)('a' + i * 7 % 26);
    return at;
}

/* The messages of a batch, one after the other; returns their end. */
static char *put_items(char *at, const char *key) {
    char own[256];
    int n = properties(own, sizeof own, key, false);
    template.item_size = (size_t)(ITEM_HEAD + options.size + 2 + n);
    template.item_key_at = (size_t)(ITEM_HEAD + options.size + 2) + offset_of(own, (size_t)n, "_UNIQUE_KEY_");
    template.item_tag_at = (size_t)(ITEM_HEAD + options.size + 2) + offset_of(own, (size_t)n, "TagT") + 3;
    for (int i = 0; i < options.batch; i++) {
        memset(at, 0, ITEM_HEAD);
        put_big32(at, (uint32_t)template.item_size);
        put_big32(at + 16, (uint32_t)options.size);
        at = put_body(at + ITEM_HEAD);
        *at++ = (char)(n >> 8);
        *at++ = (char)n;
        memcpy(at, own, (size_t)n);
        at += n;
    }
    return at;
}

void make_send_template(void) {
    char head[4096], key[48], own[512], topic[300], broker[300];
    bool batch = options.batch > 1;
    snprintf(key, sizeof key, "7F000001%04X%08X_UNIQUE_KEY_", (unsigned)getpid() & 0xffff, (unsigned)wall_ms());
    properties(own, sizeof own, key, true);
    snprintf(topic, sizeof topic, options.topics > 1 ? "%s-NNNN" : "%s", options.topic);
    snprintf(broker, sizeof broker, options.port_count > 1 ? "%s-S" : "%s", options.broker);
    int n = snprintf(head, sizeof head,
                     "{\"code\":%d,\"extFields\":{%s\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\","
                     "\"e\":\"Q\",\"f\":\"%d\",\"g\":\"BORN_TIMESTAM\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\","
                     "\"m\":\"%s\",\"n\":\"%s\"},\"flag\":0,"
                     "\"language\":\"JAVA\",\"opaque\":OOOOOOOOO,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                     batch ? 320 : 310, signed_fields(), topic, options.queues, options.transactions ? PREPARED : 0, own, batch ? "true" : "false", broker);
    if (n >= (int)sizeof head) fail("the topic or broker name is too long");
    size_t most = 8 + (size_t)n + (size_t)options.batch * (size_t)(options.size + 300);
    char *bytes = template.bytes = malloc(most);
    memcpy(bytes + 8, head, (size_t)n);
    char *body = bytes + 8 + n, *end = batch ? put_items(body, key) : put_body(body);
    template.length = (size_t)(end - bytes);
    template.body_at = (size_t)(body - bytes) + (batch ? ITEM_HEAD : 0);
    put_big32(bytes, (uint32_t)template.length - 4);
    put_big32(bytes + 4, (uint32_t)n);
    template.queue_at = 8 + offset_of(head, (size_t)n, "\"e\":\"Q\"") + 5;
    template.born_at = 8 + offset_of(head, (size_t)n, "BORN_TIMESTAM");
    template.key_at = 8 + offset_of(head, (size_t)n, "_UNIQUE_KEY_");
    template.tag_at = 8 + offset_of(head, (size_t)n, "TagT") + 3;
    template.opaque_at = 8 + offset_of(head, (size_t)n, "OOOOOOOOO");
    if (options.delay_most) template.deliver_at = 8 + offset_of(head, (size_t)n, "DELIVER_AT_MS");
    if (options.topics > 1) template.topic_at = 8 + offset_of(head, (size_t)n, "-NNNN\"") + 1;
    if (options.port_count > 1) template.shard_at = 8 + offset_of(head, (size_t)n, "-S\"}") + 1;
}

size_t request_size(Role role) { return role == SENDER || role == IDLER ? (options.frame ? frame_size() : template.length) : 2048; }

void digits(char *at, int count, uint64_t value) {
    while (count--) {
        at[count] = (char)('0' + value % 10);
        value /= 10;
    }
}

void unique_key(char *at) {
    static uint64_t given;
    uint64_t key = given++;
    for (int i = KEY_DIGITS - 1; i >= 0; i--, key >>= 4) at[i] = "0123456789ABCDEF"[key & 15];
}

/* Each topic in turn; then the next queue of each; then the next tag. So each queue gets each tag. */
static void go_on(Connection *c) {
    if (++c->topic < options.topics) return;
    c->topic = 0;
    if (++c->queue < options.queues) return;
    c->queue = 0;
    if (++c->tag >= options.tags) c->tag = 0;
}

/* All delays between the least and the most are as frequent. */
static uint64_t delay_ms(void) {
    static uint64_t given;
    return (uint64_t)options.delay_least + given++ * 7919 % (uint64_t)(options.delay_most - options.delay_least + 1);
}

char *build_send(Connection *c, char *at, uint32_t opaque) {
    static int64_t born_ns, born_ms;
    if (now_ns - born_ns > 1000000) {
        born_ns = now_ns;
        born_ms = wall_ms();
    }
    if (options.frame) {
        at = build_frame(c, at, opaque, (uint64_t)born_ms);
        go_on(c);
        return at;
    }
    memcpy(at, template.bytes, template.length);
    digits(at + template.opaque_at, OPAQUE_DIGITS, opaque);
    digits(at + template.born_at, BORN_DIGITS, (uint64_t)born_ms);
    at[template.queue_at] = (char)('0' + c->queue);
    at[template.tag_at] = (char)('A' + c->tag);
    unique_key(at + template.key_at);
    if (options.delay_most) digits(at + template.deliver_at, 13, (uint64_t)born_ms + delay_ms());
    if (options.topics > 1) digits(at + template.topic_at, TOPIC_DIGITS, (uint64_t)c->topic);
    if (options.port_count > 1) at[template.shard_at] = (char)('0' + c->shard);
    for (int i = 0; options.batch > 1 && i < options.batch; i++) {
        char *item = at + template.body_at - ITEM_HEAD + (size_t)i * template.item_size;
        unique_key(item + template.item_key_at);
        item[template.item_tag_at] = (char)('A' + (c->tag + i) % options.tags);
    }
    if (options.mode == TAIL) put_big64(at + template.body_at, (uint64_t)now_ns);
    go_on(c);
    size_t header = big32(at + 4);
    sign(at + 8, header, at + 8 + header, template.length - 8 - header);
    return at + template.length;
}

char *finish(char *at, int length) {
    put_big32(at, (uint32_t)length + 4);
    put_big32(at + 4, (uint32_t)length);
    sign(at + 8, (size_t)length, NULL, 0);
    return at + 8 + length;
}

char *build_pull(Connection *c, char *at, uint32_t opaque) {
    bool consumer = c->role == CONSUMER;
    int n = sprintf(at + 8,
                    "{\"code\":11,\"extFields\":{%s\"bname\":\"%s\",\"commitOffset\":\"0\",\"consumerGroup\":\"bench_consumer_%d\","
                    "\"expressionType\":\"%s\",\"maxMsgNums\":\"%d\",\"queueId\":\"%d\",\"queueOffset\":\"%" PRId64 "\","
                    "\"subVersion\":\"0\",\"subscription\":\"%s\",\"suspendTimeoutMillis\":\"15000\",\"sysFlag\":\"%d\","
                    "\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,"
                    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    signed_fields(), options.broker, c->group, options.filter, options.mode == PULL ? options.batch : 32, c->queue, c->offset,
                    options.subscription, SUBSCRIPTION | (consumer ? SUSPEND : 0),
                    options.mode == SEND ? options.read_topic : options.topic, opaque);
    return finish(at, n);
}

char *build_ask_end(Connection *c, char *at, uint32_t opaque) {
    int n = sprintf(at + 8,
                    "{\"code\":30,\"extFields\":{%s\"queueId\":\"%d\",\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\","
                    "\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
                    signed_fields(), c->queue, options.topic, opaque);
    return finish(at, n);
}
