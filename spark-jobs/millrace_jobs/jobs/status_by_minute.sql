-- Requests by status code and minute.
SELECT window(event_time, '1 minute') AS window, status, count(*) AS requests, sum(bytes) AS bytes
FROM events
GROUP BY window(event_time, '1 minute'), status
