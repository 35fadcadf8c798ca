/* Answers: their headers, JSON or binary, and the records of a pull. */
#define _GNU_SOURCE
#include "load.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC_V1 = -626843481,
    MAGIC_V2 = -626843477,
    SYS_FLAG_AT = 36,
    BORN_HOST_V6 = 1 << 4,
    STORE_HOST_V6 = 1 << 5,
    BODY_LENGTH_AT = 84, /* with IPv4 hosts; 12 bytes more for each that is not */
    V6_MORE = 12,
};

static int64_t json_int(const char *header, size_t length, const char *name) {
    const char *p = memmem(header, length, name, strlen(name));
    if (!p) fail("an answer without %s: %.*s", name, (int)length, header);
    p += strlen(name);
    while (*p == ' ' || *p == '"') p++;
    return strtoll(p, NULL, 10);
}

static const char *find_text(const Answer *a, const char *name, size_t *length) {
    if (!a->binary) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\":", name);
        const char *p = memmem(a->ext, a->ext_length, quoted, strlen(quoted)), *stop = a->ext + a->ext_length;
        if (!p) return NULL;
        p += strlen(quoted);
        while (p < stop && (*p == ' ' || *p == '"')) p++;
        const char *end = memchr(p, '"', (size_t)(stop - p));
        if (!end) return NULL;
        *length = (size_t)(end - p);
        return p;
    }
    for (const char *p = a->ext, *end = p + a->ext_length; p + 6 < end;) {
        size_t key = (size_t)(((unsigned char)p[0] << 8) | (unsigned char)p[1]);
        *length = big32(p + 2 + key);
        if (key == strlen(name) && !memcmp(p + 2, name, key)) return p + 6 + key;
        p += 6 + key + *length;
    }
    return NULL;
}

void ext_text(const Answer *a, const char *name, char *into, size_t size) {
    size_t length;
    const char *found = find_text(a, name, &length);
    if (!found || length >= size) fail("an answer without a %s of less than %zu bytes", name, size);
    memcpy(into, found, length);
    into[length] = 0;
}

int64_t ext_int(const Answer *a, const char *name) {
    if (!a->binary) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\":", name);
        return json_int(a->ext, a->ext_length, quoted);
    }
    char text[32];
    ext_text(a, name, text, sizeof text);
    return strtoll(text, NULL, 10);
}

Answer parse_answer(const char *frame, size_t length) {
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

static void give_body(const char *record, uint32_t size, void (*each)(const char *body, size_t length)) {
    size_t at = BODY_LENGTH_AT;
    if (size < SYS_FLAG_AT + 4) fail("a record of %u bytes", size);
    uint32_t flag = big32(record + SYS_FLAG_AT);
    at += (flag & BORN_HOST_V6 ? V6_MORE : 0) + (flag & STORE_HOST_V6 ? V6_MORE : 0);
    if (size < at + 4 || size - at - 4 < big32(record + at)) fail("a record of %u bytes whose body does not fit", size);
    each(record + at + 4, big32(record + at));
}

int64_t count_records(const Answer *a, void (*each)(const char *body, size_t length)) {
    int64_t count = 0;
    for (size_t at = 0; at < a->body_length; count++) {
        if (a->body_length - at < 8) fail("a torn record in a pull's answer");
        uint32_t size = big32(a->body + at);
        int32_t magic = (int32_t)big32(a->body + at + 4);
        if (magic != MAGIC_V1 && magic != MAGIC_V2) fail("a record with the magic %d", magic);
        if (size < 8 || size > a->body_length - at) fail("a record of %u bytes", size);
        if (each) give_body(a->body + at, size, each);
        at += size;
    }
    return count;
}
