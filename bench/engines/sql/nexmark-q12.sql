CREATE TABLE events (
  bid ROW<bidder BIGINT, `dateTime` BIGINT>,
  `at` AS TO_TIMESTAMP_LTZ(COALESCE(bid.`dateTime`, 0), 3),
  WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND
) WITH ({source})

CREATE TABLE results (bidder BIGINT, `start` BIGINT, num BIGINT) WITH ({sink})

CREATE TEMPORARY VIEW bids AS
SELECT bid.bidder AS bidder, `at` FROM events WHERE bid IS NOT NULL

INSERT INTO results
SELECT bidder, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')), COUNT(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
