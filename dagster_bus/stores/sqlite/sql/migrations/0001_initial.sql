-- The embedded store, first version.
--
-- partitions   one row for each partition: where its log ends
-- events       the log; pos = partition id << 40 | offset, so that a partition is one run of keys,
--              an append touches its right edge, and a range is read without any other index
-- groups       one row for each group that has reserved: its version and its account
-- frontiers    the first offset of a partition that a group has never reserved
-- deliveries   every delivery, open or done, with the errors of all its attempts
-- open_ranges  the ranges of deliveries that are not done; the oldest one holds the group's cursor
-- dead_letters copies of the events that a group gave up on; the delivery tells why

CREATE TABLE partitions (
    id          INTEGER PRIMARY KEY,
    topic       TEXT    NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL DEFAULT 1,
    last_ts     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition)
) STRICT;

CREATE TABLE events (
    pos             INTEGER PRIMARY KEY,
    ts              INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    key             TEXT,
    source          TEXT,
    schema_version  INTEGER NOT NULL,
    attributes      TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    idempotency_key TEXT,
    ttl_s           INTEGER,
    payload         TEXT    NOT NULL,
    payload_sha256  TEXT
) STRICT;

CREATE TABLE groups (
    name          TEXT    PRIMARY KEY,
    version       INTEGER NOT NULL DEFAULT 0,
    processed     INTEGER NOT NULL DEFAULT 0,
    filtered      INTEGER NOT NULL DEFAULT 0,
    dead_lettered INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE frontiers (
    group_name   TEXT    NOT NULL,
    partition_id INTEGER NOT NULL,
    next_offset  INTEGER NOT NULL,
    PRIMARY KEY (group_name, partition_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    id          TEXT    PRIMARY KEY,
    group_name  TEXT    NOT NULL,
    window      TEXT    NOT NULL,
    ranges      TEXT    NOT NULL,
    size        INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    outcome     TEXT,
    attempt     INTEGER NOT NULL,
    reservation INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    due_ms      INTEGER NOT NULL,
    worker      TEXT,
    errors      TEXT    NOT NULL,
    created_ms  INTEGER NOT NULL,
    version     INTEGER NOT NULL
) STRICT;

CREATE INDEX deliveries_open ON deliveries (group_name, state, due_ms) WHERE state <> 'done';

CREATE TABLE open_ranges (
    group_name   TEXT    NOT NULL,
    partition_id INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    delivery_id  TEXT    NOT NULL,
    PRIMARY KEY (group_name, partition_id, first_offset)
) STRICT, WITHOUT ROWID;

CREATE INDEX open_ranges_of_delivery ON open_ranges (delivery_id);

CREATE TABLE dead_letters (
    id              INTEGER PRIMARY KEY,
    group_name      TEXT    NOT NULL,
    delivery_id     TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    died_ms         INTEGER NOT NULL,
    topic           TEXT    NOT NULL,
    partition       INTEGER NOT NULL,
    "offset"        INTEGER NOT NULL,
    ts              INTEGER NOT NULL,
    event_id        TEXT    NOT NULL,
    key             TEXT,
    source          TEXT,
    schema_version  INTEGER NOT NULL,
    attributes      TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    idempotency_key TEXT,
    ttl_s           INTEGER,
    payload         TEXT    NOT NULL,
    payload_sha256  TEXT
) STRICT;

CREATE INDEX dead_letters_newest ON dead_letters (group_name, id);
CREATE INDEX dead_letters_by_error ON dead_letters (group_name, fingerprint);
