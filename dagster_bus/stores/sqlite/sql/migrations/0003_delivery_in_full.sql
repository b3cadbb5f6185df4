-- The embedded store, third version: parts of deliveries, redriven letters, circuit breakers.
--
-- groups        has the failures of its circuit breaker in a row, and until when it pauses
-- deliveries    may be exhausted (only to be looked at, isolated or given up), redriven (their
--               events are dead letters that were sent back; they open no ranges) and doubtful
--               (their last holder left without a word); some of their events may only wait behind
--               the others
-- open_ranges   are those of one delivery each: an event may be in two, if a group was sent back
-- dead_letters  are dead or redriven; patched is the payload that one was sent back with
-- letter_counts dead letters by error, so that nobody has to count them

ALTER TABLE groups ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE groups ADD COLUMN paused_until_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE deliveries ADD COLUMN exhausted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN redriven INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN behind TEXT NOT NULL DEFAULT '[]';
ALTER TABLE deliveries ADD COLUMN doubtful INTEGER NOT NULL DEFAULT 1;

CREATE TABLE open_ranges_3 (
    group_name   TEXT    NOT NULL,
    partition_id INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL,
    delivery_id  TEXT    NOT NULL,
    PRIMARY KEY (group_name, partition_id, first_offset, delivery_id)
) STRICT, WITHOUT ROWID;

INSERT INTO open_ranges_3
SELECT group_name, partition_id, first_offset, last_offset, delivery_id FROM open_ranges;

DROP TABLE open_ranges;
ALTER TABLE open_ranges_3 RENAME TO open_ranges;
CREATE INDEX open_ranges_of_delivery ON open_ranges (delivery_id);
CREATE INDEX open_ranges_of_partition ON open_ranges (partition_id, first_offset);

ALTER TABLE frontiers ADD COLUMN owner TEXT;

-- A new table, as a letter's number may not be given to another one once it is purged.
CREATE TABLE dead_letters_3 (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
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
    payload_sha256  TEXT,
    state           TEXT    NOT NULL DEFAULT 'dead',
    patched         TEXT
) STRICT;

INSERT INTO dead_letters_3 SELECT *, 'dead', NULL FROM dead_letters;

DROP TABLE dead_letters;
ALTER TABLE dead_letters_3 RENAME TO dead_letters;
CREATE INDEX dead_letters_newest ON dead_letters (group_name, id);
CREATE INDEX dead_letters_by_state ON dead_letters (group_name, state, id);
CREATE INDEX dead_letters_by_error ON dead_letters (group_name, state, fingerprint, id);
CREATE INDEX dead_letters_by_topic ON dead_letters (group_name, state, topic, id);
CREATE INDEX dead_letters_by_death ON dead_letters (group_name, state, died_ms, id);
CREATE INDEX dead_letters_by_place ON dead_letters (group_name, topic, partition, "offset", id);

CREATE TABLE letter_counts (
    group_name  TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (group_name, fingerprint)
) STRICT, WITHOUT ROWID;

INSERT INTO letter_counts
SELECT group_name, fingerprint, count(*) FROM dead_letters GROUP BY group_name, fingerprint;
