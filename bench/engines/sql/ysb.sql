CREATE TEMPORARY FUNCTION campaign_of AS '{function}' LANGUAGE JAVA

CREATE TABLE events (
  ad_id STRING, event_type STRING, event_time STRING,
  `at` AS TO_TIMESTAMP_LTZ(CAST(event_time AS BIGINT), 3), WATERMARK FOR `at` AS `at`
) WITH ({source})

CREATE TABLE results (campaign STRING, `start` BIGINT, `views` BIGINT) WITH ({sink})

CREATE TEMPORARY VIEW `views` AS
SELECT campaign_of(ad_id) AS campaign, `at` FROM events WHERE event_type = 'view'

INSERT INTO results
SELECT campaign, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')), COUNT(*)
FROM TABLE(TUMBLE(TABLE `views`, DESCRIPTOR(`at`), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, campaign
