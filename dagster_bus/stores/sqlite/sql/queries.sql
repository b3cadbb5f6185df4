-- Every statement of the embedded store. A comment "name: …" begins each.

-- name: topics
SELECT partitions.topic, count(*), config
FROM partitions
LEFT JOIN topics ON topics.name = partitions.topic
GROUP BY partitions.topic
ORDER BY partitions.topic

-- name: insert_partition
INSERT INTO partitions (topic, partition) VALUES (?, ?)

-- name: put_topic
INSERT INTO topics (name, config) VALUES (?, ?)
ON CONFLICT DO UPDATE SET config = excluded.config

-- name: ends
SELECT topic, partition, id, next_offset, last_ts, appended_bytes
FROM logs
WHERE (topic, partition) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))

-- name: insert_event
INSERT INTO events (pos, ts, bytes, id, key, source, schema_version, attributes, priority,
                    idempotency_key, ttl_s, payload, payload_sha256)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: known_keys
SELECT key, given_ms, partition, "offset", event_id, ts
FROM idempotency
WHERE topic = ? AND key IN (SELECT value FROM json_each(?))

-- name: note_key
INSERT INTO idempotency (topic, key, given_ms, expires_ms, partition, "offset", event_id, ts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET given_ms = excluded.given_ms, expires_ms = excluded.expires_ms, partition = excluded.partition, "offset" = excluded."offset",
    event_id = excluded.event_id, ts = excluded.ts

-- name: forget_keys
-- The oldest of those that have expired, so that the table keeps to the keys of its windows.
DELETE FROM idempotency
WHERE (topic, key) IN (
    SELECT topic, key FROM idempotency WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?
)

-- name: bounds
SELECT topic, partition, first_offset, next_offset, last_ts, appended_bytes, compacted_to
FROM logs
WHERE topic IN (SELECT value FROM json_each(?))
ORDER BY topic, partition

-- name: log
SELECT id, first_offset, next_offset, last_ts, appended_bytes, trimmed_bytes, compacted_to
FROM logs
WHERE topic = ? AND partition = ?

-- name: beginning
SELECT id, first_offset FROM partitions WHERE topic = ? AND partition = ?

-- name: read_events
-- The columns of an event, in its order. The first event always fits the budget of bytes.
SELECT id, ts, :topic, :partition, pos & 0xFFFFFFFFFF, key, source, schema_version, attributes,
       priority, idempotency_key, ttl_s, payload, payload_sha256
FROM events
WHERE pos BETWEEN :first AND :last
  AND bytes - :budget <= (
      SELECT bytes FROM events WHERE pos BETWEEN :first AND :last ORDER BY pos LIMIT 1
  )
ORDER BY pos
LIMIT :limit

-- name: read_events_arrow
-- A payload that nobody wants is not fetched.
SELECT pos & 0xFFFFFFFFFF AS "offset", ts, events.id, key, source, schema_version, attributes,
       priority, iif(?5, payload, NULL) AS payload
FROM partitions
JOIN events ON pos BETWEEN partitions.id << 40 | ?3 AND partitions.id << 40 | ?4
WHERE topic = ?1 AND partition = ?2
ORDER BY pos

-- name: bytes_between
-- Of all events of a range but the first.
SELECT coalesce(max(bytes) - min(bytes), 0)
FROM partitions
JOIN events ON pos IN (
    (SELECT min(pos) FROM events
     WHERE pos BETWEEN partitions.id << 40 | ?3 AND partitions.id << 40 | ?4),
    (SELECT max(pos) FROM events
     WHERE pos BETWEEN partitions.id << 40 | ?3 AND partitions.id << 40 | ?4)
)
WHERE topic = ?1 AND partition = ?2

-- name: compacted_to
SELECT compacted_to FROM partitions WHERE topic = ? AND partition = ?

-- name: offsets_at
-- Time never decreases along a partition, so halving finds the place in some forty look-ups.
WITH RECURSIVE halving (partition_id, low, high) AS (
    SELECT id, first_offset, next_offset
    FROM logs
    WHERE (topic, partition) IN (
        SELECT value ->> 0, value ->> 1 FROM json_each(:partitions)
    )
    UNION ALL
    SELECT partition_id,
           iif(ts < :ts, (low + high) / 2 + 1, low),
           iif(ts < :ts, high, (low + high) / 2)
    FROM halving
    LEFT JOIN events ON pos = (
        SELECT min(pos) FROM events
        WHERE pos >= partition_id << 40 | (low + high) / 2 AND pos < (partition_id + 1) << 40
    )
    WHERE low < high
)
SELECT topic, partition, low
FROM halving JOIN partitions ON partitions.id = partition_id
WHERE low = high

-- name: offset_keeping
-- Bytes grow along a partition as time does. All bytes before the place, `spare` or more, may go.
WITH RECURSIVE halving (partition_id, spare, first, before_first, low, high) AS (
    SELECT id, appended_bytes - :keep, first_offset, trimmed_bytes, first_offset, next_offset
    FROM logs
    WHERE topic = :topic AND partition = :partition
    UNION ALL
    SELECT partition_id, spare, first, before_first,
           iif(coalesce(bytes, before_first) < spare, (low + high) / 2 + 1, low),
           iif(coalesce(bytes, before_first) < spare, high, (low + high) / 2)
    FROM halving
    LEFT JOIN events ON pos = (
        SELECT max(pos) FROM events
        WHERE pos >= (partition_id << 40 | first)
          AND pos < (partition_id << 40 | (low + high) / 2)
    )
    WHERE low < high
)
SELECT low FROM halving WHERE low = high

-- name: first_held
-- What a delivery that is not done will read, of whatever group.
SELECT min(first_offset) FROM open_ranges WHERE partition_id = ?

-- name: step_end
SELECT pos & 0xFFFFFFFFFF
FROM events
WHERE pos >= :id << 40 AND pos < (:id << 40 | :first)
ORDER BY pos
LIMIT 1 OFFSET :limit

-- name: bytes_before
SELECT bytes
FROM events
WHERE pos >= :id << 40 AND pos < (:id << 40 | :first)
ORDER BY pos DESC
LIMIT 1

-- name: forget_trimmed_keys
DELETE FROM latest_keys
WHERE partition_id = :id AND "offset" < :first AND key IN (
    SELECT key FROM events WHERE pos >= :id << 40 AND pos < (:id << 40 | :first)
)

-- name: trim
DELETE FROM events WHERE pos >= :id << 40 AND pos < (:id << 40 | :first)

-- name: keep_ends
-- What an append reads off the newest event, kept for when that is gone.
UPDATE partitions
SET first_offset = ?, next_offset = ?, last_ts = ?, appended_bytes = ?, trimmed_bytes = ?,
    compacted_to = ?
WHERE id = ?

-- name: delete_superseded
-- Events whose key comes again: later among those looked at now, or there at all if they were
-- looked at before.
DELETE FROM events
WHERE pos IN (
    SELECT partition_id << 40 | "offset"
    FROM latest_keys
    WHERE partition_id = :id AND key IN (
        SELECT key FROM events WHERE pos BETWEEN :id << 40 | :first AND :id << 40 | :last
    )
    UNION ALL
    SELECT pos FROM (
        SELECT pos, max(pos) OVER (PARTITION BY key) AS newest
        FROM events
        WHERE pos BETWEEN :id << 40 | :first AND :id << 40 | :last AND key IS NOT NULL
    )
    WHERE pos < newest
)

-- name: note_latest_keys
INSERT INTO latest_keys (partition_id, key, "offset", tombstone_ts)
SELECT :id, key, pos & 0xFFFFFFFFFF, iif(payload = 'null', ts, NULL)
FROM events
WHERE pos BETWEEN :id << 40 | :first AND :id << 40 | :last AND key IS NOT NULL
ON CONFLICT DO UPDATE SET "offset" = excluded."offset", tombstone_ts = excluded.tombstone_ts

-- name: old_tombstones
SELECT key, "offset"
FROM latest_keys
WHERE partition_id = :id AND tombstone_ts IS NOT NULL AND tombstone_ts < :before
ORDER BY tombstone_ts
LIMIT :limit

-- name: delete_event
DELETE FROM events WHERE pos = ? << 40 | ?

-- name: forget_latest_key
DELETE FROM latest_keys WHERE partition_id = ? AND key = ?

-- name: groups
SELECT name FROM groups ORDER BY name

-- name: group_account
SELECT version, failures, paused_until_ms, processed, filtered, dead_lettered, expired
FROM groups
WHERE name = ?

-- name: partition_heads
-- A frontier lies at or after the first offset that is available.
WITH heads AS (
    SELECT logs.id AS id, topic, partition,
           max(coalesce(frontiers.next_offset, first_offset), first_offset) AS frontier,
           logs.next_offset AS next_offset,
           frontiers.next_offset IS NULL AS is_new,
           owner
    FROM logs
    LEFT JOIN frontiers ON partition_id = logs.id AND group_name = :group
    WHERE topic IN (SELECT value FROM json_each(:topics))
)
SELECT topic, partition, frontier, next_offset,
       (
           SELECT ts
           FROM events
           WHERE pos >= (heads.id << 40 | frontier) AND pos < (heads.id + 1) << 40
           ORDER BY pos
           LIMIT 1
       ),
       is_new,
       EXISTS (
           SELECT 1 FROM open_ranges
           WHERE open_ranges.group_name = :group AND open_ranges.partition_id = heads.id
       ),
       owner
FROM heads
ORDER BY topic, partition

-- name: deliveries_to_see
-- Those in flight or blocked, and those whose wait is over. (SQLite takes the index of open
-- deliveries only if its condition stands here word for word.)
SELECT * FROM (
    SELECT * FROM deliveries
    WHERE group_name = :group AND state IN ('reserved', 'running', 'blocked') AND state <> 'done'
)
UNION ALL
SELECT * FROM (
    SELECT * FROM deliveries
    WHERE group_name = :group AND state = 'waiting' AND due_ms <= :now AND state <> 'done'
    ORDER BY due_ms
    LIMIT :due_limit
)

-- name: open_deliveries
SELECT * FROM deliveries
WHERE group_name = :group AND state <> 'done' AND (:state IS NULL OR state = :state)
ORDER BY created_ms, id

-- name: deliveries
SELECT * FROM deliveries WHERE id IN (SELECT value FROM json_each(?))

-- name: cursors
-- Where the group began, its cursor, and the newest event that is its own: of a topic that the
-- group no longer reads, the last that it took. A group may begin beyond the end of the log.
SELECT topic, partition,
       coalesce(
           frontiers.start_offset + iif(topic IN (SELECT value FROM json_each(:topics)),
                                        max(0, logs.first_offset - frontiers.next_offset),
                                        0),
           logs.first_offset
       ) - 1,
       coalesce(
           (
               SELECT min(open_ranges.first_offset) FROM open_ranges
               WHERE open_ranges.group_name = :group AND open_ranges.partition_id = logs.id
           ),
           max(frontiers.next_offset, logs.first_offset),
           logs.first_offset
       ) - 1,
       iif(topic IN (SELECT value FROM json_each(:topics)),
           max(logs.next_offset, coalesce(frontiers.next_offset, 0)),
           frontiers.next_offset) - 1
FROM logs
LEFT JOIN frontiers ON frontiers.partition_id = logs.id AND frontiers.group_name = :group
WHERE topic IN (SELECT value FROM json_each(:topics)) OR frontiers.next_offset IS NOT NULL
ORDER BY topic, partition

-- name: open_sizes
SELECT state, sum(size) FROM deliveries
WHERE group_name = ? AND state <> 'done'
GROUP BY state

-- name: delivery
SELECT * FROM deliveries WHERE id = ?

-- name: ensure_group
INSERT INTO groups (name) VALUES (?) ON CONFLICT DO NOTHING

-- name: advance_group
UPDATE groups SET version = version + 1 WHERE name = ? AND version = ?

-- name: set_breaker
UPDATE groups
SET failures = ?, paused_until_ms = ?
WHERE name = ? AND failures = ? AND paused_until_ms = ?

-- name: move_frontier
-- A group begins with the first offset that is there when it takes its first event, or where it is
-- sent to. What was trimmed before it came back, if it was away, is not counted as its own either.
INSERT INTO frontiers (group_name, partition_id, next_offset, start_offset, owner)
SELECT :group, id, :frontier, first_offset + :shift, :owner
FROM partitions
WHERE topic = :topic AND partition = :partition
ON CONFLICT DO UPDATE
SET next_offset = excluded.next_offset,
    owner = excluded.owner,
    start_offset = start_offset + :shift
                   + max(0, excluded.start_offset - :shift - frontiers.next_offset)

-- name: insert_delivery
INSERT INTO deliveries (id, group_name, window, ranges, size, state, outcome, attempt, reservation,
                        token, due_ms, worker, errors, created_ms, version, exhausted, redriven,
                        behind, doubtful, looks)
VALUES (:id, :group_name, :window, :ranges, :size, :state, :outcome, :attempt, :reservation,
        :token, :due_ms, :worker, :errors, :created_ms, :version, :exhausted, :redriven,
        :behind, :doubtful, :looks)
ON CONFLICT DO NOTHING

-- name: stored_ranges
SELECT id, ranges FROM deliveries WHERE id IN (SELECT value FROM json_each(?))

-- name: update_delivery
UPDATE deliveries
SET ranges = :ranges, size = :size, state = :state, outcome = :outcome, attempt = :attempt,
    reservation = :reservation, token = :token, due_ms = :due_ms, worker = :worker,
    errors = :errors, created_ms = :created_ms, version = :version, exhausted = :exhausted,
    behind = :behind, doubtful = :doubtful, looks = :looks
WHERE id = :id AND version = :version - 1

-- name: forget_delivery
DELETE FROM deliveries WHERE id = :id AND version = :version - 1

-- name: open_range
-- Nothing can be opened that was trimmed away since it was decided on.
INSERT INTO open_ranges (group_name, partition_id, first_offset, last_offset, delivery_id)
SELECT :group, id, :first, :last, :delivery
FROM partitions
WHERE topic = :topic AND partition = :partition AND first_offset <= :first

-- name: close_ranges
DELETE FROM open_ranges WHERE delivery_id IN (SELECT value FROM json_each(?))

-- name: fitting
-- Bytes grow along a partition, so halving finds the last event that fits in some forty look-ups.
WITH RECURSIVE halving (low, high) AS (
    SELECT :first, :last + 1
    UNION ALL
    SELECT iif(coalesce(bytes, :before) - :before <= :most, (low + high) / 2 + 1, low),
           iif(coalesce(bytes, :before) - :before <= :most, high, (low + high) / 2)
    FROM halving
    LEFT JOIN events ON pos = (
        SELECT max(pos) FROM events
        WHERE pos BETWEEN (:id << 40 | :first) AND (:id << 40 | (low + high) / 2)
    )
    WHERE low < high
)
SELECT low - 1,
       coalesce(
           (
               SELECT bytes FROM events
               WHERE pos >= (:id << 40 | :first) AND pos < (:id << 40 | low)
               ORDER BY pos DESC
               LIMIT 1
           ),
           :before
       ) - :before
FROM halving
WHERE low = high

-- name: most_urgent
SELECT min(priority) FROM events
WHERE pos BETWEEN (:id << 40 | :first) AND (:id << 40 | :last)

-- name: holders
-- The open delivery with the highest offset of a key is the one to wait for.
WITH held (key, delivery_id, newest) AS (
    SELECT key, delivery_id, max(pos)
    FROM open_ranges
    CROSS JOIN events ON pos BETWEEN partition_id << 40 | first_offset
                                 AND partition_id << 40 | last_offset
    WHERE group_name = :group AND partition_id = :id AND key IS NOT NULL
    GROUP BY key
)
SELECT pos & 0xFFFFFFFFFF, delivery_id
FROM events
JOIN held USING (key)
WHERE pos BETWEEN :id << 40 | :first AND :id << 40 | :last
ORDER BY pos

-- name: bury
-- The function `fate` says what becomes of an event: 'dead', 'filtered' or 'expired'.
INSERT INTO dead_letters (group_name, delivery_id, fingerprint, died_ms, topic, partition, "offset",
                          ts, event_id, key, source, schema_version, attributes, priority,
                          idempotency_key, ttl_s, payload, payload_sha256)
SELECT :group, :delivery, :fingerprint, :died_ms, topic, partition, pos & 0xFFFFFFFFFF,
       ts, events.id, key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM partitions
JOIN events ON pos BETWEEN partitions.id << 40 | :first AND partitions.id << 40 | :last
WHERE topic = :topic AND partition = :partition
  AND (:all_die OR fate(attributes, key, ts, ttl_s) = 'dead')
ORDER BY pos

-- name: expired_in
SELECT count(*)
FROM partitions
JOIN events ON pos BETWEEN partitions.id << 40 | :first AND partitions.id << 40 | :last
WHERE topic = :topic AND partition = :partition AND ttl_s IS NOT NULL
  AND fate(attributes, key, ts, ttl_s) = 'expired'

-- name: bury_again
-- Letters that were sent back and died once more. Their time to live was over when they were sent
-- back, or not: whoever sent them wants them.
INSERT INTO dead_letters (group_name, delivery_id, fingerprint, died_ms, topic, partition, "offset",
                          ts, event_id, key, source, schema_version, attributes, priority,
                          idempotency_key, ttl_s, payload, payload_sha256)
SELECT group_name, :delivery, :fingerprint, :died_ms, topic, partition, "offset",
       ts, event_id, key, source, schema_version, attributes, priority, idempotency_key, ttl_s,
       coalesce(patched, payload), iif(patched IS NULL, payload_sha256, NULL)
FROM dead_letters
WHERE id IN (
    SELECT max(id) FROM dead_letters
    WHERE group_name = :group AND topic = :topic AND partition = :partition
      AND "offset" BETWEEN :first AND :last AND state = 'redriven'
    GROUP BY "offset"
)
ORDER BY "offset"

-- name: last_letter
SELECT max(id) FROM dead_letters

-- name: letters_after
SELECT event_id, ts, topic, partition, "offset", key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM dead_letters
WHERE id > ?
ORDER BY id

-- name: add_to_account
UPDATE groups
SET processed = processed + ?, filtered = filtered + ?, dead_lettered = dead_lettered + ?,
    expired = expired + ?
WHERE name = ?

-- name: count_letters
INSERT INTO letter_counts (group_name, fingerprint, count) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count

-- name: redrive
UPDATE dead_letters
SET state = 'redriven', patched = ?
WHERE id = ? AND group_name = ? AND state = 'dead'
RETURNING fingerprint

-- name: dead_letters
-- The condition is put together by what is asked for.
SELECT dead_letters.id, dead_letters.group_name, delivery_id, fingerprint, died_ms, errors,
       dead_letters.state, patched,
       event_id, ts, topic, partition, "offset", key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM dead_letters
JOIN deliveries ON deliveries.id = delivery_id
WHERE {condition}
ORDER BY dead_letters.id DESC
LIMIT :limit

-- name: dead_letter_counts
SELECT fingerprint, count FROM letter_counts
WHERE group_name = ? AND count > 0
ORDER BY count DESC, fingerprint

-- name: redriven
SELECT event_id, ts, topic, partition, "offset", key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, coalesce(patched, payload), iif(patched IS NULL, payload_sha256, NULL)
FROM dead_letters
WHERE id IN (
    SELECT max(id) FROM dead_letters
    WHERE group_name = :group AND topic = :topic AND partition = :partition
      AND "offset" BETWEEN :first AND :last AND state = 'redriven'
    GROUP BY "offset"
)
ORDER BY "offset"

-- name: redriven_ranges
-- What the group's open deliveries of letters that were sent back still need.
SELECT ranges FROM deliveries WHERE group_name = ? AND state <> 'done' AND redriven

-- name: oldest_letters
SELECT id, fingerprint, died_ms, topic, partition, "offset"
FROM dead_letters
WHERE group_name = :group AND state = :state AND died_ms < :before
  AND (died_ms, id) > (:after_ms, :after_id)
ORDER BY died_ms, id
LIMIT :limit

-- name: delete_letter
DELETE FROM dead_letters WHERE id = ?
