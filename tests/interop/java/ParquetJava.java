import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.avro.AvroParquetReader;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.avro.AvroReadSupport;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.ReadSupport;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.hadoop.util.HadoopOutputFile;

/** Readers and a writer of parquet-java, as a program uses them. */
final class ParquetJava {
  private ParquetJava() {}

  /** Returns the rows that are left in a reader, each on one line, and closes it. */
  private static <T> String readAll(ParquetReader<T> opened) throws Exception {
    List<String> rows = new ArrayList<>();
    try (ParquetReader<T> reader = opened) {
      for (T row = reader.read(); row != null; row = reader.read()) {
        rows.add(row.toString().trim().replace("\n", " "));
      }
    }
    return String.join(", ", rows);
  }

  /** Reads columns as groups: their names, with the type that they have in the file, apart by semicolons. */
  static final class Groups implements OutsideReads.Reader {
    @Override
    public String read(Configuration conf, Path file, String columns) throws Exception {
      conf.set(ReadSupport.PARQUET_READ_SCHEMA, "message rows { " + columns + " }");
      return readAll(ParquetReader.builder(new GroupReadSupport(), file).withConf(conf).build());
    }
  }

  /** Reads columns as Avro records: a comma-separated list of optional columns, each a name and an Avro type. */
  static final class Records implements OutsideReads.Reader {
    @Override
    public String read(Configuration conf, Path file, String columns) throws Exception {
      SchemaBuilder.FieldAssembler<Schema> fields = SchemaBuilder.record("rows").fields();
      for (String column : columns.split(",")) {
        String[] words = column.split(" ");
        fields = fields.name(words[0]).type().optional().type(words[1]);
      }
      AvroReadSupport.setRequestedProjection(conf, fields.endRecord());
      return readAll(AvroParquetReader.<GenericRecord>builder(file).withConf(conf).build());
    }
  }

  /** Writes a file of one row, all columns of which are texts: their names, apart by commas. */
  static final class Writer implements OutsideReads.Reader {
    @Override
    public String read(Configuration conf, Path file, String columns) throws Exception {
      SchemaBuilder.FieldAssembler<Schema> fields = SchemaBuilder.record("rows").fields();
      for (String column : columns.split(",")) {
        fields = fields.requiredString(column);
      }
      Schema schema = fields.endRecord();
      GenericRecord row = new GenericData.Record(schema);
      schema.getFields().forEach(field -> row.put(field.name(), "x"));
      try (ParquetWriter<GenericRecord> writer =
          AvroParquetWriter.<GenericRecord>builder(HadoopOutputFile.fromPath(file, conf)).withSchema(schema).withConf(conf).build()) {
        writer.write(row);
      }
      return "";
    }
  }
}
