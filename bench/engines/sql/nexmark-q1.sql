CREATE TABLE events (
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, extra STRING>
) WITH ({source})

CREATE TABLE results (
  auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` BIGINT, extra STRING
) WITH ({sink})

INSERT INTO results
SELECT bid.auction, bid.bidder, 0.908 * bid.price, bid.`dateTime`, bid.extra
FROM events WHERE bid IS NOT NULL
