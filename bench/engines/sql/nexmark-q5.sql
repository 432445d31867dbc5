CREATE TABLE events (
  bid ROW<auction BIGINT, `dateTime` BIGINT>,
  `at` AS TO_TIMESTAMP_LTZ(COALESCE(bid.`dateTime`, 0), 3),
  WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND
) WITH ({source})

CREATE TABLE results (auction BIGINT, `start` BIGINT, num BIGINT) WITH ({sink})

CREATE TEMPORARY VIEW bids AS
SELECT bid.auction AS auction, `at` FROM events WHERE bid IS NOT NULL

CREATE TEMPORARY VIEW counts AS
SELECT auction, COUNT(*) AS num, window_start, window_end
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end

INSERT INTO results
SELECT own.auction, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(own.window_start, 'yyyy-MM-dd HH:mm:ss')),
  own.num
FROM counts AS own
JOIN (
  SELECT MAX(num) AS num, window_start, window_end FROM counts GROUP BY window_start, window_end
) AS most
ON own.window_start = most.window_start AND own.window_end = most.window_end
  AND own.num >= most.num
