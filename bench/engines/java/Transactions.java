package bench;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.ForeachPartitionFunction;
import org.apache.spark.sql.Row;

/**
 * Writes a batch's rows, of one text each, to Kafka exactly once: each of its partitions is a
 * transaction, which commits with them the batch's number, as an offset of a group of its own. A
 * batch that runs again finds there what was written. It must come in the same partitions again.
 */
public final class Transactions implements ForeachPartitionFunction<Row> {
    /** A task's producer lives on, as its partition's. */
    private static final Map<String, Writer> WRITERS = new ConcurrentHashMap<>();

    private final String brokers;
    private final Map<String, String> producer;
    private final String topic;
    private final long batch;

    public Transactions(String brokers, Map<String, String> producer, String topic, long batch) {
        this.brokers = brokers;
        this.producer = producer;
        this.topic = topic;
        this.batch = batch;
    }

    @Override
    public void call(Iterator<Row> rows) {
        if (!rows.hasNext()) {
            return;
        }
        String name = topic + "-" + TaskContext.getPartitionId();
        Writer writer = WRITERS.computeIfAbsent(name, key -> new Writer(key, brokers, producer, topic));
        try {
            writer.write(batch, rows);
        } catch (RuntimeException error) { // the next try joins anew and asks what was committed
            WRITERS.remove(name);
            writer.producer.close();
            throw error;
        }
    }

    private static final class Writer {
        private final String topic;
        private final String group;
        private final TopicPartition mark;
        private final KafkaProducer<byte[], byte[]> producer;
        private long written;

        Writer(String name, String brokers, Map<String, String> settings, String topic) {
            this.topic = topic;
            group = name;
            mark = new TopicPartition(topic, 0);
            var properties = new Properties();
            properties.putAll(settings);
            properties.put("bootstrap.servers", brokers);
            properties.put("group.id", name);
            properties.put("transactional.id", name);
            var bytes = new ByteArraySerializer();
            producer = new KafkaProducer<>(properties, bytes, bytes);
            producer.initTransactions(); // what was begun before is committed or aborted now
            var reader = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<>(properties, reader, reader)) {
                OffsetAndMetadata last = consumer.committed(Set.of(mark)).get(mark);
                written = last == null ? -1 : last.offset();
            }
        }

        void write(long batch, Iterator<Row> rows) {
            if (batch <= written) {
                return;
            }
            producer.beginTransaction();
            while (rows.hasNext()) {
                producer.send(new ProducerRecord<>(topic, rows.next().getString(0).getBytes(UTF_8)));
            }
            producer.sendOffsetsToTransaction(
                Map.of(mark, new OffsetAndMetadata(batch)), new ConsumerGroupMetadata(group));
            producer.commitTransaction();
            written = batch;
        }
    }
}
