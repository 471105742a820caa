import java.io.FileReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A running total for each key in Flink, between two topics of Kafka, in a cluster of one process. */
public final class FlinkCount {
    /** The state of bench/counting.py, on the JVM. */
    static final class Count extends KeyedProcessFunction<Long, Long, Tuple2<Long, Long>> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.LONG));
        }

        @Override
        public void processElement(Long key, Context context, Collector<Tuple2<Long, Long>> out) throws IOException {
            Long before = total.value();
            long counted = before == null ? 1L : before + 1L;
            total.update(counted);
            out.collect(Tuple2.of(key, counted));
        }
    }

    static final class Key implements DeserializationSchema<Long> {
        private static final ObjectMapper JSON = new ObjectMapper();

        @Override
        public Long deserialize(byte[] message) throws IOException {
            return JSON.readTree(message).get("key").asLong();
        }

        @Override
        public boolean isEndOfStream(Long next) {
            return false;
        }

        @Override
        public TypeInformation<Long> getProducedType() {
            return Types.LONG;
        }
    }

    static final class Total implements SerializationSchema<Tuple2<Long, Long>> {
        @Override
        public byte[] serialize(Tuple2<Long, Long> row) {
            return ("{\"key\":" + row.f0 + ",\"total\":" + row.f1 + "}").getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties run = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            run.load(file);
        }
        Configuration conf = new Configuration();
        Properties producer = new Properties();
        for (String name : run.stringPropertyNames()) {
            if (name.startsWith("conf.")) {
                conf.setString(name.substring("conf.".length()), run.getProperty(name));
            } else if (name.startsWith("producer.")) {
                producer.setProperty(name.substring("producer.".length()), run.getProperty(name));
            }
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(conf);
        KafkaSource<Long> source = KafkaSource.<Long>builder()
                .setBootstrapServers(run.getProperty("bootstrap"))
                .setTopics(run.getProperty("source"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new Key())
                .build();
        KafkaSink<Tuple2<Long, Long>> sink = KafkaSink.<Tuple2<Long, Long>>builder()
                .setBootstrapServers(run.getProperty("bootstrap"))
                .setKafkaProducerConfig(producer)
                .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<Long, Long>>builder()
                        .setTopic(run.getProperty("sink"))
                        .setValueSerializationSchema(new Total())
                        .build())
                .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "records")
                .uid("records")
                .keyBy(key -> key, Types.LONG)
                .process(new Count())
                .uid("count")
                .sinkTo(sink)
                .uid("totals");
        environment.execute("count");
    }
}
