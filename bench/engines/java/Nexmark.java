import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** Nexmark's queries without state on Kafka Streams. */
public final class Nexmark {
    private static final JsonFactory JSON = new JsonFactory();

    record Bid(long auction, long bidder, long price, long dateTime, String extra) {}

    /** Arguments: a file of properties, topic of events, topic of results, nexmark-q1 or -q2. */
    public static void main(String[] arguments) throws IOException {
        Properties properties = new Properties();
        try (var file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        var builder = new StreamsBuilder();
        var parsed = Serdes.<Bid>serdeFrom((topic, bid) -> null, (topic, value) -> parse(value));
        var bids = builder.stream(arguments[1], Consumed.with(Serdes.ByteArray(), parsed))
            .filter((key, bid) -> bid != null);
        var results = switch (arguments[3]) {
            case "nexmark-q1" -> bids.mapValues(Nexmark::inEuros);
            case "nexmark-q2" -> bids.filter((key, bid) -> bid.auction() % 123 == 0)
                .mapValues(bid -> "{\"auction\":" + bid.auction() + ",\"price\":" + bid.price() + "}");
            default -> throw new IllegalArgumentException(arguments[3]);
        };
        results.to(arguments[2], Produced.with(Serdes.ByteArray(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }

    private static String inEuros(Bid bid) {
        return "{\"auction\":" + bid.auction() + ",\"bidder\":" + bid.bidder()
            + ",\"price\":" + BigDecimal.valueOf(908 * bid.price(), 3).toPlainString()
            + ",\"dateTime\":" + bid.dateTime() + ",\"extra\":\"" + bid.extra() + "\"}";
    }

    /** Null for what isn't a bid. */
    private static Bid parse(byte[] value) {
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                boolean bid = parser.currentName().equals("bid");
                parser.nextToken();
                if (bid) {
                    return bid(parser);
                }
                parser.skipChildren();
            }
            return null;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Bid bid(JsonParser parser) throws IOException {
        long auction = 0;
        long bidder = 0;
        long price = 0;
        long dateTime = 0;
        String extra = null;
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            String name = parser.currentName();
            parser.nextToken();
            switch (name) {
                case "auction" -> auction = parser.getLongValue();
                case "bidder" -> bidder = parser.getLongValue();
                case "price" -> price = parser.getLongValue();
                case "dateTime" -> dateTime = parser.getLongValue();
                case "extra" -> extra = parser.getText();
                default -> parser.skipChildren();
            }
        }
        return new Bid(auction, bidder, price, dateTime, extra);
    }
}
