package bench;

import java.util.HashMap;
import java.util.Map;
import redis.clients.jedis.Jedis;

/** Ads' campaigns in Redis. A task has one of its own, which asks for each ad once. */
public final class Campaigns implements AutoCloseable {
    private final Jedis redis;
    private final Map<String, String> known = new HashMap<>();

    public Campaigns(int port) {
        redis = new Jedis("127.0.0.1", port);
    }

    public String of(String ad) {
        return known.computeIfAbsent(ad, redis::get);
    }

    @Override
    public void close() {
        redis.close();
    }
}
