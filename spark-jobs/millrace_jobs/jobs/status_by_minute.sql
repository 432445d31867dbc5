-- Requests by status code and minute.
SELECT window(event_time, '$window_seconds seconds') AS window, status, count(*) AS requests, sum(bytes) AS bytes
FROM events
GROUP BY window(event_time, '$window_seconds seconds'), status
