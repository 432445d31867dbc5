import bench.StreamsCampaign;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;

/** YSB on Kafka Streams: views with their ad's campaign, counted by campaign and window. */
public final class Ysb {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    /** Partitions are read at speeds of their own: nothing may be too late. */
    private static final Duration GRACE = Duration.ofHours(24);
    private static final JsonFactory JSON = new JsonFactory();

    /** Of an event what is needed; {@code ad} is null for what isn't a view. */
    record Event(String ad, long time) {}

    /**
     * Arguments: a file of properties, topic of events, topic of results, "table" or "redis", and
     * the topic of ads or Redis' port.
     */
    public static void main(String[] arguments) throws IOException {
        Properties properties = new Properties();
        try (var file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        var builder = new StreamsBuilder();
        var events = Serdes.<Event>serdeFrom((topic, event) -> null, (topic, value) -> parse(value));
        var consumed = Consumed.with(Serdes.ByteArray(), events)
            .withTimestampExtractor((record, before) -> ((Event) record.value()).time());
        var ads = builder.stream(arguments[1], consumed)
            .filter((key, event) -> event.ad() != null)
            .mapValues(Event::ad);
        var campaigns = switch (arguments[3]) {
            case "table" -> joined(ads, builder, arguments[4]);
            case "redis" -> ads.processValues(() -> new StreamsCampaign(Integer.parseInt(arguments[4])));
            default -> throw new IllegalArgumentException(arguments[3]);
        };
        campaigns
            .map((key, campaign) -> new KeyValue<>(campaign, new byte[0]))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count(Materialized.<String, Long>as(
                    Stores.inMemoryWindowStore("views", GRACE.plus(WINDOW), WINDOW, false))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
            .toStream()
            .map((window, views) -> new KeyValue<>(
                window.key(),
                "{\"campaign\":\"" + window.key() + "\",\"start\":" + window.window().start()
                    + ",\"views\":" + views + "}"))
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }

    private static KStream<byte[], String> joined(
            KStream<byte[], String> ads, StreamsBuilder builder, String topic) {
        var table = builder.globalTable(
            topic,
            Consumed.with(Serdes.String(), Serdes.String()),
            Materialized.as(Stores.inMemoryKeyValueStore("ads")));
        return ads.join(table, (key, ad) -> ad, (ad, campaign) -> campaign);
    }

    private static Event parse(byte[] value) {
        String ad = null;
        boolean view = false;
        long time = 0;
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "ad_id" -> ad = parser.getText();
                    case "event_type" -> view = "view".equals(parser.getText());
                    case "event_time" -> time = Long.parseLong(parser.getText());
                    default -> { }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Event(view ? ad : null, time);
    }
}
