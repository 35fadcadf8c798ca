/* TLS and signatures. Built without OpenSSL's headers, all else works, and who asks for these hears why they can't. */
#define _GNU_SOURCE
#include "load.h"
#include <string.h>

#ifdef WITH_OPENSSL
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA1_Init and its like: a state can be copied, so a key is hashed once */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SHA1_BLOCK = 64,
    SIGNATURE_CHARS = 28, /* 20 bytes in base64 */
    CONTENT_BYTES = 8192, /* of the values of all fields of a request */
    NAME_AND_QUOTES = 13, /* "Signature":" */
};

/* ---- TLS ---- */

static SSL_CTX *context;

static _Noreturn void fail_tls(const char *what) {
    char text[256];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    fail("TLS: %s: %s", what, text);
}

void tls_begin(Connection *c) {
    if (!context && !(context = SSL_CTX_new(TLS_client_method()))) fail_tls("no context");
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    c->tls = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (!c->tls || !in || !out) fail_tls("no memory");
    SSL_set_bio(c->tls, in, out);
    SSL_set_connect_state(c->tls);
    SSL_do_handshake(c->tls);
}

bool tls_handshake(Connection *c) {
    int done = SSL_do_handshake(c->tls);
    if (done != 1 && SSL_get_error(c->tls, done) != SSL_ERROR_WANT_READ) fail_tls("the handshake failed");
    return done == 1;
}

void tls_seal(Connection *c, size_t length) {
    size_t sealed;
    if (length && !SSL_write_ex(c->tls, c->out, length, &sealed)) fail_tls("a request could not be sealed");
}

size_t tls_leaving(Connection *c, char **bytes) {
    long length = BIO_get_mem_data(SSL_get_wbio(c->tls), bytes);
    return length > 0 ? (size_t)length : 0;
}

void tls_left(Connection *c) { (void)BIO_reset(SSL_get_wbio(c->tls)); }

void tls_arrived(Connection *c, const char *bytes, size_t length) {
    if (BIO_write(SSL_get_rbio(c->tls), bytes, (int)length) != (int)length) fail_tls("no memory");
}

size_t tls_open(Connection *c, char *into, size_t most) {
    size_t total = 0, n;
    while (total < most && SSL_read_ex(c->tls, into + total, most - total, &n)) total += n;
    if (total < most && SSL_get_error(c->tls, 0) != SSL_ERROR_WANT_READ) fail_tls("the server closed a connection");
    return total;
}

/* ---- signatures: HMAC-SHA1 over the values of all fields, in the order of their names, and the body ---- */

static SHA_CTX inner, outer; /* behind the padded key */

static void prepare_key(void) {
    unsigned char key[SHA1_BLOCK] = {0}, pad[SHA1_BLOCK];
    size_t length = strlen(options.secret_key);
    if (length > sizeof key) fail("--secret-key has more than %d bytes", SHA1_BLOCK);
    memcpy(key, options.secret_key, length);
    for (int i = 0; i < SHA1_BLOCK; i++) pad[i] = key[i] ^ 0x36;
    SHA1_Init(&inner);
    SHA1_Update(&inner, pad, sizeof pad);
    for (int i = 0; i < SHA1_BLOCK; i++) pad[i] = key[i] ^ 0x5c;
    SHA1_Init(&outer);
    SHA1_Update(&outer, pad, sizeof pad);
}

const char *signed_fields(void) {
    static char text[256];
    if (!options.access_key || *text) return text;
    prepare_key();
    int n = snprintf(text, sizeof text, "\"AccessKey\":\"%s\",\"Signature\":\"%.*s\",", options.access_key,
                     SIGNATURE_CHARS, "============================");
    if (n >= (int)sizeof text) fail("--access-key is too long");
    return text;
}

/* The values of a flat JSON object of strings, whose names are in order, go to `into`; returns their length. */
static size_t values(const char *at, const char *end, char *into) {
    char *to = into;
    while (at < end && *at != '}') {
        bool skipped = !memcmp(at, "\"Signature\"", 11);
        at = memchr(at + 1, '"', (size_t)(end - at - 1)); /* the end of the name, then ':' and the value's begin */
        if (!at) fail("a request's fields can't be signed");
        for (at += 3; at < end && *at != '"'; at++) {
            if (*at != '\\') {
                if (!skipped) *to++ = *at;
            } else { /* \u0001 and \u0002: no others are made here */
                *to++ = (char)(at[5] - '0');
                at += 5;
            }
        }
        at++;
        if (*at == ',') at++;
    }
    return (size_t)(to - into);
}

void sign(char *header, size_t length, const char *body, size_t body_length) {
    char content[CONTENT_BYTES];
    unsigned char digest[SHA_DIGEST_LENGTH], text[SIGNATURE_CHARS + 1];
    if (!options.access_key) return;
    char *fields = memmem(header, length, "\"extFields\":{", 13);
    char *place = memmem(header, length, "\"Signature\":\"", NAME_AND_QUOTES);
    if (!fields || !place || length > sizeof content) fail("a request can't be signed");
    size_t n = values(fields + 13, header + length, content);
    SHA_CTX hash = inner;
    SHA1_Update(&hash, content, n);
    SHA1_Update(&hash, body, body_length);
    SHA1_Final(digest, &hash);
    hash = outer;
    SHA1_Update(&hash, digest, sizeof digest);
    SHA1_Final(digest, &hash);
    EVP_EncodeBlock(text, digest, sizeof digest);
    memcpy(place + NAME_AND_QUOTES, text, SIGNATURE_CHARS);
}

#else

static _Noreturn void without(void) {
    fail("--tls and --access-key need OpenSSL's headers, which were not there when this was built: install libssl-dev");
}

void tls_begin(Connection *c) { (void)c, without(); }
bool tls_handshake(Connection *c) { (void)c, without(); }
void tls_seal(Connection *c, size_t length) { (void)c, (void)length, without(); }
size_t tls_leaving(Connection *c, char **bytes) { (void)c, (void)bytes, without(); }
void tls_left(Connection *c) { (void)c, without(); }
void tls_arrived(Connection *c, const char *bytes, size_t length) { (void)c, (void)bytes, (void)length, without(); }
size_t tls_open(Connection *c, char *into, size_t most) { (void)c, (void)into, (void)most, without(); }
void sign(char *header, size_t length, const char *body, size_t body_length) {
    (void)header, (void)length, (void)body, (void)body_length;
}

const char *signed_fields(void) {
    if (options.access_key) without();
    return "";
}

#endif
