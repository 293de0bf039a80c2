// Clients of a Kafka broker: java -cp LIBRARIES Broker.java fill|run BOOTSTRAP NAME=VALUE...
//
// fill  makes the topics `backlog` and `live` and fills the first: partitions, backlog (bytes of each)
// run   producers and tailing consumers of `live`, consumers that each read a partition of `backlog` from a
//       place of their own on, over and over; the result is one line of JSON
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.HdrHistogram.ConcurrentHistogram;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

class Broker {
    /** Bytes of a record. */
    static final int RECORD = 16 << 10;
    /** Longest time told apart, microseconds: an hour. */
    static final long LONGEST_US = 3_600_000_000L;
    /** Partitions of the topic that is written, and threads that write it. */
    static final int LIVE = 4;

    static String bootstrap;
    static final Properties values = new Properties();

    static long value(String name) {
        return (long) Double.parseDouble(values.getProperty(name));
    }

    static KafkaProducer<byte[], byte[]> producer() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap, "acks", "1", "batch.size", 256 << 10,
            "linger.ms", 5, "compression.type", "none"), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String topic, int partition) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap,
            "enable.auto.commit", false, "check.crcs", false, "auto.offset.reset", "earliest"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(new TopicPartition(topic, partition)));
        return consumer;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        for (String pair : Arrays.asList(args).subList(2, args.length)) {
            values.setProperty(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        if (args[0].equals("fill")) fill(); else run();
        // Threads of clients that wait for the broker hold nobody up.
        Runtime.getRuntime().halt(0);
    }

    static void fill() throws Exception {
        int partitions = (int) value("partitions");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("backlog", partitions, (short) 1),
                new NewTopic("live", LIVE, (short) 1))).all().get();
        }
        byte[] data = new byte[RECORD];
        new Random(1).nextBytes(data);
        AtomicLong failed = new AtomicLong();
        // One partition after the other in parts of 16 MiB, as producers of many partitions leave them.
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (long at = 0; at < value("backlog"); at += 16 << 20) {
                for (int p = 0; p < partitions; p++) {
                    for (int i = 0; i < (16 << 20) / RECORD; i++) {
                        producer.send(new ProducerRecord<>("backlog", p, null, data),
                            (meta, error) -> { if (error != null) failed.incrementAndGet(); });
                    }
                }
            }
        }
        if (failed.get() > 0) throw new IllegalStateException(failed.get() + " records were not written");
    }

    static volatile long from, to;

    static boolean counts(long now) {
        return now >= from && now < to;
    }

    static void run() throws Exception {
        long start = System.nanoTime();
        from = start + value("warmup_ms") * 1_000_000;
        to = from + value("duration_ms") * 1_000_000;
        LongAdder caught = new LongAdder(), tailed = new LongAdder();
        LongAdder produced = new LongAdder(), failed = new LongAdder();
        ConcurrentHistogram produce = new ConcurrentHistogram(LONGEST_US, 3);
        ConcurrentHistogram tail = new ConcurrentHistogram(LONGEST_US, 3);
        List<Thread> threads = new ArrayList<>();
        for (int p = 0; p < value("catching_up"); p++) {
            int partition = p % (int) value("partitions");
            long seed = p;
            threads.add(new Thread(() -> catchUp(partition, seed, caught)));
        }
        for (int t = 0; t < value("tailing"); t++) {
            int partition = t % LIVE;
            threads.add(new Thread(() -> follow(partition, tailed, tail)));
        }
        double each = value("rate") / (double) LIVE;
        for (int p = 0; p < LIVE && each > 0; p++) {
            int partition = p;
            threads.add(new Thread(() -> write(partition, each, start, produced, failed, produce)));
        }
        threads.forEach(thread -> { thread.setDaemon(true); thread.start(); });
        while (System.nanoTime() < from) Thread.sleep(10);
        System.out.println("counting");
        while (System.nanoTime() < to) Thread.sleep(10);
        double s = (to - from) / 1e9;
        System.out.printf("{\"mb_s\":%.3f,\"tail_mb_s\":%.3f,\"produced_mb_s\":%.3f,\"failed\":%d,"
            + "\"produce_p50_ms\":%.3f,\"produce_p99_ms\":%.3f,\"tail_p99_ms\":%.3f}%n", caught.sum() / 1e6 / s,
            tailed.sum() / 1e6 / s, produced.sum() / 1e6 / s, failed.sum(), produce.getValueAtPercentile(50) / 1e3,
            produce.getValueAtPercentile(99) / 1e3, tail.getValueAtPercentile(99) / 1e3);
    }

    /** Reads a partition from a place of its own on, over and over. */
    static void catchUp(int partition, long seed, LongAdder bytes) {
        TopicPartition of = new TopicPartition("backlog", partition);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("backlog", partition)) {
            long end = consumer.endOffsets(List.of(of)).get(of);
            consumer.seek(of, (long) (new Random(seed).nextDouble() * end));
            while (System.nanoTime() < to) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (counts(System.nanoTime())) bytes.add(record.value().length);
                }
                if (consumer.position(of) >= end) consumer.seek(of, 0);
            }
        }
    }

    /** Reads what is written, as it comes. */
    static void follow(int partition, LongAdder bytes, ConcurrentHistogram times) {
        TopicPartition of = new TopicPartition("live", partition);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("live", partition)) {
            consumer.seekToEnd(List.of(of));
            while (System.nanoTime() < to) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (!counts(System.nanoTime())) continue;
                    bytes.add(record.value().length);
                    times.recordValue(Math.max(1, (System.currentTimeMillis() - record.timestamp()) * 1000));
                }
            }
        }
    }

    /** Writes at a rate. A record's time is from when it was due until it is acknowledged. */
    static void write(int partition, double rate, long start, LongAdder bytes, LongAdder failed,
        ConcurrentHistogram times) {
        byte[] data = new byte[RECORD];
        new Random(partition).nextBytes(data);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (long n = 0; ; n++) {
                long due = start + (long) (n * RECORD / rate * 1e9);
                if (due >= to) return;
                long early = due - System.nanoTime();
                if (early > 0) Thread.sleep(early / 1_000_000, (int) (early % 1_000_000));
                producer.send(new ProducerRecord<>("live", partition, null, data), (meta, error) -> {
                    long now = System.nanoTime();
                    if (!counts(now)) return;
                    if (error != null) { failed.increment(); return; }
                    bytes.add(RECORD);
                    times.recordValue(Math.max(1, Math.min(LONGEST_US, (now - due) / 1000)));
                });
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
