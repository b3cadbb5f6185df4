-- Every statement of the embedded store. A comment "name: …" begins each.

-- name: partition_counts
SELECT topic, count(*) FROM partitions GROUP BY topic ORDER BY topic

-- name: insert_partition
INSERT INTO partitions (topic, partition) VALUES (?, ?)

-- name: partitions_of_topics
SELECT topic, partition, id, next_offset, last_ts
FROM partitions
WHERE topic IN (SELECT value FROM json_each(?))

-- name: advance_partition
UPDATE partitions SET next_offset = ?, last_ts = ? WHERE id = ?

-- name: insert_event
INSERT INTO events (pos, ts, id, key, source, schema_version, attributes, priority,
                    idempotency_key, ttl_s, payload, payload_sha256)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: partition_id
SELECT id FROM partitions WHERE topic = ? AND partition = ?

-- name: read_events
SELECT pos & 0xFFFFFFFFFF, ts, id, key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM events
WHERE pos BETWEEN ? AND ?
ORDER BY pos
LIMIT ?

-- name: read_events_arrow
SELECT pos & 0xFFFFFFFFFF AS "offset", ts, events.id, key, source, schema_version, attributes,
       priority, payload
FROM partitions
JOIN events ON pos BETWEEN partitions.id << 40 | ?3 AND partitions.id << 40 | ?4
WHERE topic = ?1 AND partition = ?2
ORDER BY pos

-- name: offsets_at
-- Time never decreases along a partition, so halving finds the place in some forty look-ups.
WITH RECURSIVE halving (partition_id, low, high) AS (
    SELECT id, 1, next_offset
    FROM partitions
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

-- name: group_account
SELECT version, processed, filtered, dead_lettered FROM groups WHERE name = ?

-- name: partition_heads
SELECT topic, partition, coalesce(frontiers.next_offset, 1) AS frontier, partitions.next_offset,
       (
           SELECT ts
           FROM events
           WHERE pos >= partitions.id << 40 | coalesce(frontiers.next_offset, 1)
             AND pos < (partitions.id + 1) << 40
           ORDER BY pos
           LIMIT 1
       )
FROM partitions
LEFT JOIN frontiers ON partition_id = partitions.id AND group_name = ?
WHERE topic IN (SELECT value FROM json_each(?))
ORDER BY topic, partition

-- name: open_deliveries
-- Those in flight, and those whose wait is over. (SQLite takes the index of open deliveries only
-- if its condition stands here word for word.)
SELECT * FROM (
    SELECT * FROM deliveries
    WHERE group_name = :group AND state IN ('reserved', 'running') AND state <> 'done'
)
UNION ALL
SELECT * FROM (
    SELECT * FROM deliveries
    WHERE group_name = :group AND state = 'waiting' AND due_ms <= :now AND state <> 'done'
    ORDER BY due_ms
    LIMIT :due_limit
)

-- name: cursors
-- A topic that the group no longer reads counts with the events that it took from it.
SELECT topic, partition,
       coalesce(
           (
               SELECT min(first_offset) FROM open_ranges
               WHERE open_ranges.group_name = :group AND open_ranges.partition_id = partitions.id
           ),
           frontiers.next_offset,
           1
       ) - 1,
       iif(topic IN (SELECT value FROM json_each(:topics)),
           partitions.next_offset,
           frontiers.next_offset) - 1
FROM partitions
LEFT JOIN frontiers ON frontiers.partition_id = partitions.id AND frontiers.group_name = :group
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

-- name: move_frontier
INSERT INTO frontiers (group_name, partition_id, next_offset)
SELECT ?, id, ? FROM partitions WHERE topic = ? AND partition = ?
ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset

-- name: insert_delivery
INSERT INTO deliveries (id, group_name, window, ranges, size, state, outcome, attempt, reservation,
                        token, due_ms, worker, errors, created_ms, version)
VALUES (:id, :group_name, :window, :ranges, :size, :state, :outcome, :attempt, :reservation,
        :token, :due_ms, :worker, :errors, :created_ms, :version)
ON CONFLICT DO NOTHING

-- name: update_delivery
UPDATE deliveries
SET state = :state, outcome = :outcome, attempt = :attempt, reservation = :reservation,
    token = :token, due_ms = :due_ms, worker = :worker, errors = :errors, version = :version
WHERE id = :id AND version = :version - 1

-- name: open_range
INSERT INTO open_ranges (group_name, partition_id, first_offset, last_offset, delivery_id)
SELECT ?, id, ?, ?, ? FROM partitions WHERE topic = ? AND partition = ?

-- name: close_ranges
DELETE FROM open_ranges WHERE delivery_id = ?

-- name: bury
-- The function `wanted` is the group's filter; it is not called where there is none.
INSERT INTO dead_letters (group_name, delivery_id, fingerprint, died_ms, topic, partition, "offset",
                          ts, event_id, key, source, schema_version, attributes, priority,
                          idempotency_key, ttl_s, payload, payload_sha256)
SELECT :group, :delivery, :fingerprint, :died_ms, topic, partition, pos & 0xFFFFFFFFFF,
       ts, events.id, key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM partitions
JOIN events ON pos BETWEEN partitions.id << 40 | :first AND partitions.id << 40 | :last
WHERE topic = :topic AND partition = :partition AND (:unfiltered OR wanted(attributes))
ORDER BY pos

-- name: add_to_account
UPDATE groups
SET processed = processed + ?, filtered = filtered + ?, dead_lettered = dead_lettered + ?
WHERE name = ?

-- name: dead_letters
SELECT dead_letters.id, dead_letters.group_name, delivery_id, fingerprint, died_ms, errors,
       topic, partition, "offset", ts, event_id, key, source, schema_version, attributes, priority,
       idempotency_key, ttl_s, payload, payload_sha256
FROM dead_letters
JOIN deliveries ON deliveries.id = delivery_id
WHERE dead_letters.group_name = ? AND dead_letters.id < ?
ORDER BY dead_letters.id DESC
LIMIT ?

-- name: dead_letter_counts
SELECT fingerprint, count(*) FROM dead_letters
WHERE group_name = ?
GROUP BY fingerprint
ORDER BY count(*) DESC, fingerprint
