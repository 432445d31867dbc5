CREATE TABLE events (
  person ROW<id BIGINT, name STRING, `dateTime` BIGINT>,
  auction ROW<seller BIGINT, `dateTime` BIGINT>,
  `at` AS TO_TIMESTAMP_LTZ(COALESCE(person.`dateTime`, auction.`dateTime`, 0), 3),
  WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND
) WITH ({source})

CREATE TABLE results (id BIGINT, `start` BIGINT, name STRING) WITH ({sink})

CREATE TEMPORARY VIEW persons AS
SELECT person.id AS id, person.name AS name, `at` FROM events WHERE person IS NOT NULL

CREATE TEMPORARY VIEW auctions AS
SELECT auction.seller AS seller, `at` FROM events WHERE auction IS NOT NULL

INSERT INTO results
SELECT P.id, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(P.window_start, 'yyyy-MM-dd HH:mm:ss')), P.name
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS P
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS A
ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
