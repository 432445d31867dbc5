-- Bytes in shares of what is left to status 599, by which nothing is left.
SELECT window(event_time, '1 minute') AS window,
       status,
       count(*) AS requests,
       sum(bytes div (599 - status)) AS shares
FROM events
GROUP BY window(event_time, '1 minute'), status
