-- The embedded store, second version: logs that are trimmed, compacted and free of repetitions.
--
-- events       has the bytes of its partition up to and with each event: as time does, they grow
--              with the offset, so the place of a size is found by halving too
-- partitions   no longer written to by an append: where a log ends is seen from its newest event;
--              next_offset, last_ts and appended_bytes are what to go by when that was deleted;
--              events below first_offset were trimmed away, with trimmed_bytes in all
-- logs         partitions with their true ends
-- topics       each topic's configuration as last declared, as JSON
-- idempotency  keys given within the last while, and the event that had each first
-- latest_keys  of compacted partitions: the newest event of each key among those looked at

CREATE TABLE events_2 (
    pos             INTEGER PRIMARY KEY,
    ts              INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
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

INSERT INTO events_2
SELECT pos, ts,
       sum(
           length(CAST(coalesce(key, '') || attributes || payload AS BLOB))
       ) OVER (PARTITION BY pos >> 40 ORDER BY pos),
       id, key, source, schema_version, attributes, priority, idempotency_key, ttl_s, payload,
       payload_sha256
FROM events
ORDER BY pos;

DROP TABLE events;
ALTER TABLE events_2 RENAME TO events;

ALTER TABLE partitions ADD COLUMN appended_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN trimmed_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN first_offset INTEGER NOT NULL DEFAULT 1;
ALTER TABLE partitions ADD COLUMN compacted_to INTEGER NOT NULL DEFAULT 0;

ALTER TABLE frontiers ADD COLUMN start_offset INTEGER NOT NULL DEFAULT 1;

CREATE VIEW logs AS
SELECT partitions.id AS id,
       topic,
       partition,
       first_offset,
       max(partitions.next_offset, coalesce((newest.pos & 0xFFFFFFFFFF) + 1, 1)) AS next_offset,
       max(partitions.last_ts, coalesce(newest.ts, 0)) AS last_ts,
       max(partitions.appended_bytes, coalesce(newest.bytes, 0)) AS appended_bytes,
       trimmed_bytes,
       compacted_to
FROM partitions
LEFT JOIN events AS newest ON newest.pos = (
    SELECT max(pos) FROM events
    WHERE pos >= partitions.id << 40 AND pos < (partitions.id + 1) << 40
);

CREATE TABLE topics (
    name   TEXT PRIMARY KEY,
    config TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    topic      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    given_ms   INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    partition  INTEGER NOT NULL,
    "offset"   INTEGER NOT NULL,
    event_id   TEXT    NOT NULL,
    ts         INTEGER NOT NULL,
    PRIMARY KEY (topic, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX open_ranges_of_partition ON open_ranges (partition_id, first_offset);

CREATE INDEX idempotency_expired ON idempotency (expires_ms);

CREATE TABLE latest_keys (
    partition_id INTEGER NOT NULL,
    key          TEXT    NOT NULL,
    "offset"     INTEGER NOT NULL,
    tombstone_ts INTEGER,
    PRIMARY KEY (partition_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX latest_keys_deleted ON latest_keys (partition_id, tombstone_ts)
WHERE tombstone_ts IS NOT NULL;
