package bench;

import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** An ad's campaign, looked up in Redis. */
public final class StreamsCampaign extends ContextualFixedKeyProcessor<byte[], String, String> {
    private final int port;
    private Campaigns campaigns;

    public StreamsCampaign(int port) {
        this.port = port;
    }

    @Override
    public void init(FixedKeyProcessorContext<byte[], String> context) {
        super.init(context);
        campaigns = new Campaigns(port);
    }

    @Override
    public void process(FixedKeyRecord<byte[], String> ad) {
        context().forward(ad.withValue(campaigns.of(ad.value())));
    }

    @Override
    public void close() {
        campaigns.close();
    }
}
