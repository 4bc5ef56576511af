import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.NanoTime;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/** Writes rows of every type, flat and nested, with the parquet-mr that is on the class path. */
public final class OldWriter {
  private static final MessageType SCHEMA =
      MessageTypeParser.parseMessageType(
          "message old { required int64 id; required binary ssn (UTF8); optional double score; optional float f;"
              + " required boolean even; optional int32 small; optional binary few (UTF8); optional int96 at;"
              + " optional fixed_len_byte_array(5) code; optional int32 price (DECIMAL(9,2)); optional double nothing;"
              + " optional group phones (LIST) { repeated group list { optional binary element (UTF8); } }"
              + " optional group labels (MAP) { repeated group map (MAP_KEY_VALUE)"
              + " { required binary key (UTF8); optional int64 value; } } }");

  private OldWriter() {}

  /** Takes a folder, rows, and names of files: codec, v1 or v2, and whether to use dictionaries. */
  public static void main(String[] arguments) throws Exception {
    for (int place = 2; place < arguments.length; place++) {
      write(new Path(arguments[0], arguments[place]), Integer.parseInt(arguments[1]), arguments[place].split("-"));
    }
  }

  private static void write(Path file, int rows, String[] how) throws Exception {
    Configuration conf = new Configuration();
    conf.set("parquet.example.schema", SCHEMA.toString());
    boolean second = how[1].equals("v2");
    try (ParquetWriter<Group> writer =
        ExampleParquetWriter.builder(file)
            .withType(SCHEMA)
            .withConf(conf)
            .withCompressionCodec(CompressionCodecName.valueOf(how[0].toUpperCase(Locale.ROOT)))
            .withWriterVersion(second ? WriterVersion.PARQUET_2_0 : WriterVersion.PARQUET_1_0)
            .withDictionaryEncoding(Boolean.parseBoolean(how[2]))
            .withRowGroupSize(60_000)
            .withPageSize(1024)
            .withDictionaryPageSize(2048)
            .build()) {
      SimpleGroupFactory factory = new SimpleGroupFactory(SCHEMA);
      for (int number = 0; number < rows; number++) {
        writer.write(row(factory.newGroup(), number));
      }
    }
  }

  private static Group row(Group row, int number) {
    row.append("id", (long) number).append("ssn", String.format(Locale.ROOT, "%09d", number * 2L));
    row.append("even", number % 2 == 0);
    if (number % 3 != 0) {
      row.append("score", number / 7.0).append("f", number / 3f).append("small", number % 100);
      row.append("few", "text " + number % 5).append("at", new NanoTime(2_440_588 + number, 1_000L * number));
      row.append("code", Binary.fromConstantByteArray(new byte[] {1, 2, 3, 4, (byte) number}));
      row.append("price", number);
    }
    Group phones = row.addGroup("phones");
    for (int phone = 0; phone < number % 3; phone++) {
      phones.addGroup("list").append("element", "+" + number + phone);
    }
    Group label = row.addGroup("labels").addGroup("map").append("key", "k");
    if (number % 2 == 0) {
      label.append("value", (long) number);
    }
    return row;
  }
}
