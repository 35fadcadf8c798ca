/* Sends as a real client framed them: bytes from a file, with places that are filled in anew for each send.
 *
 * bench/frames.py makes the file from a recorded frame: lines of a hole's kind and its offset, then `frame` and hex.
 */
#define _GNU_SOURCE
#include "load.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HOLES = 512, KIND_BYTES = 16 };

typedef enum { OPAQUE_TEXT, OPAQUE_BINARY, QUEUE, BORN, KEY, TOPIC, SHARD, KINDS } Kind;
static const struct {
    const char *name;
    size_t width;
} kinds[KINDS] = {
    [OPAQUE_TEXT] = {"opaque", OPAQUE_DIGITS}, [OPAQUE_BINARY] = {"opaque32", 4}, [QUEUE] = {"queue", 1},
    [BORN] = {"born", BORN_DIGITS}, [KEY] = {"key", KEY_DIGITS}, [TOPIC] = {"topic", TOPIC_DIGITS}, [SHARD] = {"shard", 1},
};

static struct {
    Kind kind;
    size_t at;
} holes[MAX_HOLES];
static int hole_count;
static char *frame;
static size_t frame_length;

static void add_hole(const char *name, size_t at) {
    Kind kind = 0;
    while (kind < KINDS && strcmp(name, kinds[kind].name)) kind++;
    if (kind == KINDS) fail("%s: no such hole: %s", options.frame, name);
    if (hole_count == MAX_HOLES) fail("%s: more than %d holes", options.frame, MAX_HOLES);
    holes[hole_count].kind = kind;
    holes[hole_count++].at = at;
}

static void add_bytes(const char *hex) {
    size_t digits = strspn(hex, "0123456789abcdef");
    frame_length = digits / 2;
    frame = malloc(frame_length + 1);
    for (size_t i = 0; i < frame_length; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) fail("%s: the frame is not hexadecimal", options.frame);
        frame[i] = (char)byte;
    }
    if (digits % 2 || frame_length < 8 || big32(frame) + 4 != frame_length)
        fail("%s: %zu bytes of a frame that says it has %u", options.frame, frame_length, frame_length < 4 ? 0 : big32(frame) + 4);
}

void read_frame(void) {
    FILE *file = fopen(options.frame, "r");
    if (!file) fail("%s: %s", options.frame, strerror(errno));
    char *line = NULL, name[KIND_BYTES];
    size_t size = 0, at;
    while (getline(&line, &size, file) >= 0) {
        if (!strncmp(line, "frame ", 6)) add_bytes(line + 6);
        else if (sscanf(line, "%15s %zu", name, &at) == 2) add_hole(name, at);
        else fail("%s: a line that is neither a hole nor the frame: %.40s", options.frame, line);
    }
    free(line);
    fclose(file);
    if (!frame) fail("%s: no frame", options.frame);
    bool numbered = false;
    for (int i = 0; i < hole_count; i++) {
        if (holes[i].at + kinds[holes[i].kind].width > frame_length) fail("%s: a hole behind the frame's end", options.frame);
        numbered |= holes[i].kind == OPAQUE_TEXT || holes[i].kind == OPAQUE_BINARY;
    }
    if (!numbered) fail("%s: no hole for the opaque", options.frame);
}

size_t frame_size(void) { return frame_length; }

char *build_frame(const Connection *c, char *at, uint32_t opaque, uint64_t born_ms) {
    memcpy(at, frame, frame_length);
    for (int i = 0; i < hole_count; i++) {
        char *hole = at + holes[i].at;
        switch (holes[i].kind) {
        case OPAQUE_TEXT: digits(hole, OPAQUE_DIGITS, opaque); break;
        case OPAQUE_BINARY: put_big32(hole, opaque); break;
        case QUEUE: *hole = (char)('0' + c->queue); break;
        case BORN: digits(hole, BORN_DIGITS, born_ms); break;
        case KEY: unique_key(hole); break;
        case TOPIC: digits(hole, TOPIC_DIGITS, (uint64_t)c->topic); break;
        case SHARD: *hole = (char)('0' + c->shard); break;
        case KINDS: break;
        }
    }
    return at + frame_length;
}
