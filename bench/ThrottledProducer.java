import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, for bench/told_wait.py: writes at a fixed rate to a topic, and prints four times a second the
 * bytes that were acknowledged and the longest it was told to wait (its metric `produce-throttle-time-max`, in ms).
 * Arguments: bootstrap servers, topic, client id, bytes per second.
 */
public class ThrottledProducer {
    static final int RECORD = 10_000;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", arguments[2]);
        settings.put("acks", "all");
        settings.put("buffer.memory", "8388608");
        settings.put("max.block.ms", "600000");
        settings.put("delivery.timeout.ms", "600000");
        AtomicLong acknowledged = new AtomicLong();
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        Thread teller = new Thread(() -> tell(producer, acknowledged));
        teller.setDaemon(true);
        teller.start();
        byte[] payload = new byte[RECORD];
        long pauseNanos = (long) (1e9 * RECORD / Double.parseDouble(arguments[3]));
        for (long due = System.nanoTime(); ; due = Math.max(due + pauseNanos, System.nanoTime() - 200_000_000L)) {
            long left = due - System.nanoTime();
            if (left > 1_000_000) Thread.sleep(left / 1_000_000);
            producer.send(new ProducerRecord<>(arguments[1], payload), (metadata, error) -> {
                if (error == null) acknowledged.addAndGet(RECORD);
            });
        }
    }

    static void tell(KafkaProducer<byte[], byte[]> producer, AtomicLong acknowledged) {
        while (true) {
            double told = producer.metrics().entrySet().stream()
                .filter(metric -> metric.getKey().name().equals("produce-throttle-time-max"))
                .mapToDouble(metric -> ((Number) metric.getValue().metricValue()).doubleValue())
                .filter(value -> !Double.isNaN(value)).max().orElse(0);
            System.out.println(acknowledged.get() + " " + (long) told);
            System.out.flush();
            try {
                Thread.sleep(250);
            } catch (InterruptedException end) {
                return;
            }
        }
    }
}
