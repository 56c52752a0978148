import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;

/** Reads messages with Confluent's deserialiser, and writes what it found as Avro once more. */
public final class ReadMessages {
    private ReadMessages() {}

    /** Each line of the input is a topic, a blank, and a value in hex; each of the output "read" and Avro. */
    public static void main(String[] arguments) throws Exception {
        var reader = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var deserializer = new KafkaAvroDeserializer()) {
            deserializer.configure(Map.of("schema.registry.url", arguments[0]), false);
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                String[] parts = line.split(" ");
                byte[] content = HexFormat.of().parseHex(parts[1]);
                var found = (GenericRecord) deserializer.deserialize(parts[0], content);
                var out = new ByteArrayOutputStream();
                BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
                new GenericDatumWriter<GenericRecord>(found.getSchema()).write(found, encoder);
                encoder.flush();
                System.out.println("read " + HexFormat.of().formatHex(out.toByteArray()));
            }
        }
    }
}
