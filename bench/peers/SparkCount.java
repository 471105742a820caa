import java.io.FileReader;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** A running total for each key in Spark's real-time mode, between two topics of Kafka. */
public final class SparkCount {
    /** The state of bench/counting.py, on the JVM. */
    static final class Count extends StatefulProcessor<Long, Long, Tuple2<Long, Long>> {
        private transient ValueState<Long> total;

        @Override
        public void init(OutputMode outputMode, TimeMode timeMode) {
            total = getHandle().getValueState("total", Encoders.LONG(), TTLConfig.NONE());
        }

        @Override
        public Iterator<Tuple2<Long, Long>> handleInputRows(
                Long key, Iterator<Long> rows, TimerValues timerValues) {
            long counted = total.exists() ? total.get() : 0L;
            while (rows.hasNext()) {
                rows.next();
                counted++;
            }
            total.update(counted);
            return CollectionConverters.asScala(List.of(new Tuple2<>(key, counted)).iterator());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties run = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            run.load(file);
        }
        SparkSession spark = SparkSession.builder().appName("spark-real-time").getOrCreate();
        Column key = functions.from_json(functions.col("value").cast("string"), "key bigint", Map.of()).getField("key");
        Dataset<Long> records = spark.readStream()
                .format("kafka")
                .option("kafka.bootstrap.servers", run.getProperty("bootstrap"))
                .option("subscribe", run.getProperty("source"))
                .option("startingOffsets", "earliest")
                .load()
                .select(key.as("key"))
                .as(Encoders.LONG());
        Dataset<Row> totals = records.groupByKey((MapFunction<Long, Long>) one -> one, Encoders.LONG())
                .transformWithState(
                        new Count(), TimeMode.None(), OutputMode.Update(), Encoders.tuple(Encoders.LONG(), Encoders.LONG()))
                .toDF("key", "total");
        DataStreamWriter<Row> writer = totals
                .select(functions.to_json(functions.struct("key", "total")).as("value"))
                .writeStream()
                .outputMode("update")
                .format("kafka")
                .option("kafka.bootstrap.servers", run.getProperty("bootstrap"))
                .option("topic", run.getProperty("sink"))
                .option("checkpointLocation", run.getProperty("checkpoint"))
                .trigger(Trigger.RealTime(run.getProperty("trigger")));
        for (String name : run.stringPropertyNames()) {
            if (name.startsWith("producer.")) {
                writer = writer.option("kafka." + name.substring("producer.".length()), run.getProperty(name));
            }
        }
        writer.start().awaitTermination();
    }
}
