-- The embedded store, fourth version.
--
-- deliveries    count how many of their holders have looked in vain for events that fail alone

ALTER TABLE deliveries ADD COLUMN looks INTEGER NOT NULL DEFAULT 0;
