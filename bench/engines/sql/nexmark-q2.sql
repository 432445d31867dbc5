CREATE TABLE events (bid ROW<auction BIGINT, price BIGINT>) WITH ({source})

CREATE TABLE results (auction BIGINT, price BIGINT) WITH ({sink})

INSERT INTO results
SELECT bid.auction, bid.price FROM events WHERE MOD(bid.auction, 123) = 0
