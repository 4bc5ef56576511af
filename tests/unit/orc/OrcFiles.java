import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.Key;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.exec.vector.*;
import org.apache.hadoop.hive.serde2.io.HiveDecimalWritable;
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory;
import org.apache.orc.*;
import org.apache.orc.impl.HadoopShims;
import org.apache.orc.impl.KeyProvider;
import org.apache.orc.impl.LocalKey;

/**
 * Writes and reads ORC files for tests; each line of standard input is a command, its words apart by tabs.
 * An empty line ends some commands, which are carried out then; another is printed after what they print.
 * write PATH SCHEMA ROWS STRIPE_ROWS STRIDE CODEC ENCRYPT MASKS BLOOMS KEYS
 * SCHEMA is ORC's text of a struct, and after it ";name:geometry" or ";name:geography", which that has no words for
 * read PATH KEYS: a line "column digest nulls" for each top-level column, then "done"
 * find PATH KEYS COLUMN VALUE: rows and values that a reader finds when it may skip row groups
 * KEYS is a file of lines "name wrapped key" (hex), or "-".
 */
public class OrcFiles {
  static class Keys implements KeyProvider {
    private final Map<String, ArrayDeque<byte[][]>> fresh = new HashMap<>();
    private final Map<String, byte[]> known = new HashMap<>();
    private final Map<String, EncryptionAlgorithm> algorithms = new HashMap<>();

    Keys(String file) throws IOException {
      if (file.equals("-")) {
        return;
      }
      for (String line : Files.readAllLines(Paths.get(file))) {
        String[] words = line.split(" ");
        byte[] key = HexFormat.of().parseHex(words[2]);
        fresh.computeIfAbsent(words[0], name -> new ArrayDeque<>())
            .add(new byte[][] {key, HexFormat.of().parseHex(words[1])});
        known.put(words[1], key);
        algorithms.put(words[0],
            key.length == 32 ? EncryptionAlgorithm.AES_CTR_256 : EncryptionAlgorithm.AES_CTR_128);
      }
    }

    @Override
    public List<String> getKeyNames() {
      return new ArrayList<>(fresh.keySet());
    }

    @Override
    public HadoopShims.KeyMetadata getCurrentKeyVersion(String name) {
      return new HadoopShims.KeyMetadata(name, 1, algorithms.get(name));
    }

    @Override
    public LocalKey createLocalKey(HadoopShims.KeyMetadata key) {
      byte[][] made = fresh.get(key.getKeyName()).remove();
      return new LocalKey(key.getAlgorithm(), made[0], made[1]);
    }

    @Override
    public Key decryptLocalKey(HadoopShims.KeyMetadata key, byte[] wrapped) throws IOException {
      byte[] found = known.get(HexFormat.of().formatHex(wrapped));
      if (found == null) {
        throw new IOException("denied");
      }
      return new SecretKeySpec(found, key.getAlgorithm().getAlgorithm());
    }

    @Override
    public HadoopShims.KeyProviderKind getKind() {
      return HadoopShims.KeyProviderKind.UNKNOWN;
    }
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    List<String> commands = new ArrayList<>();
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      if (!line.isEmpty()) {
        commands.add(line);
        continue;
      }
      for (String command : commands) {
        carryOut(command);
      }
      commands.clear();
      System.out.println();
      System.out.flush();
    }
  }

  static void carryOut(String command) throws Exception {
    String[] words = command.split("\t", -1);
    switch (words[0]) {
      case "write" -> write(words);
      case "read" -> read(words[1], new Keys(words[2]));
      case "find" -> find(words[1], new Keys(words[2]), words[3], Long.parseLong(words[4]));
      default -> throw new IllegalArgumentException(command);
    }
  }

  static void write(String[] words) throws Exception {
    TypeDescription schema = schemaOf(words[2]);
    int rows = Integer.parseInt(words[3]);
    Configuration conf = new Configuration(false);
    conf.set("orc.stripe.row.count", words[4]);
    conf.set("orc.rows.between.memory.checks", "100");
    OrcFile.WriterOptions options = OrcFile.writerOptions(conf)
        .setSchema(schema)
        .rowIndexStride(Integer.parseInt(words[5]))
        .buildIndex(!words[5].equals("0"))
        .compress(CompressionKind.valueOf(words[6]))
        .version(OrcFile.Version.valueOf(words[11]));
    if (!words[7].isEmpty()) {
      options.setKeyProvider(new Keys(words[10])).encrypt(words[7]).masks(words[8]);
    }
    if (!words[9].isEmpty()) {
      options.bloomFilterColumns(words[9]);
    }
    Random chance = new Random(17);
    try (Writer writer = OrcFile.createWriter(new Path(words[1]), options)) {
      writer.addUserMetadata("test.note", ByteBuffer.wrap("seen".getBytes(StandardCharsets.UTF_8)));
      VectorizedRowBatch batch = schema.createRowBatch(500);
      for (int done = 0; done < rows; done += 500) {
        batch.reset();
        int count = Math.min(500, rows - done);
        for (int c = 0; c < batch.cols.length; ++c) {
          fill(batch.cols[c], schema.getChildren().get(c), 0, count, done, chance);
        }
        batch.size = count;
        writer.addRowBatch(batch);
      }
    }
  }

  static TypeDescription schemaOf(String text) {
    String[] parts = text.split(";");
    TypeDescription schema = TypeDescription.fromString(parts[0]);
    for (int p = 1; p < parts.length; ++p) {
      String[] field = parts[p].split(":");
      schema.addField(field[0],
          field[1].equals("geometry") ? TypeDescription.createGeometry() : TypeDescription.createGeography());
    }
    return schema;
  }

  static void fill(ColumnVector vector, TypeDescription type, int from, int to, long first, Random chance) {
    vector.ensureSize(to, true);
    for (int row = from; row < to; ++row) {
      vector.isNull[row] = !(type.getId() == 1) && chance.nextInt(5) == 0;
      vector.noNulls &= !vector.isNull[row];
      if (!vector.isNull[row]) {
        put(vector, type, row, first, chance);
      }
    }
    if (vector instanceof StructColumnVector struct) {
      for (int f = 0; f < struct.fields.length; ++f) {
        fill(struct.fields[f], type.getChildren().get(f), from, to, first, chance);
      }
    }
  }

  static void put(ColumnVector vector, TypeDescription type, int row, long first, Random chance) {
    switch (type.getCategory()) {
      case BOOLEAN -> ((LongColumnVector) vector).vector[row] = chance.nextInt(2);
      case BYTE -> ((LongColumnVector) vector).vector[row] = (byte) chance.nextInt();
      case SHORT -> ((LongColumnVector) vector).vector[row] = (short) chance.nextInt();
      case INT, DATE -> ((LongColumnVector) vector).vector[row] = chance.nextInt(20000);
      case LONG -> ((LongColumnVector) vector).vector[row] =
          type.getId() == 1 ? first + row : chance.nextLong() >> chance.nextInt(60);
      case FLOAT -> ((DoubleColumnVector) vector).vector[row] = chance.nextFloat();
      case DOUBLE -> ((DoubleColumnVector) vector).vector[row] = chance.nextDouble();
      case STRING, VARCHAR, CHAR, BINARY -> {
        String text = type.getId() % 2 == 0 ? "v" + chance.nextInt(9) : "w" + Math.abs(chance.nextLong()) % 99999;
        ((BytesColumnVector) vector).setVal(row, text.getBytes(StandardCharsets.UTF_8));
      }
      case TIMESTAMP, TIMESTAMP_INSTANT -> {
        TimestampColumnVector stamps = (TimestampColumnVector) vector;
        stamps.time[row] = (chance.nextBoolean() ? 1_600_000_000_000L : -400_000_000_000L) + chance.nextInt();
        stamps.nanos[row] = (int) Math.floorMod(stamps.time[row], 1000L) * 1_000_000 + chance.nextInt(1000) * 1000;
      }
      case DECIMAL -> {
        long value = chance.nextInt();
        if (vector instanceof Decimal64ColumnVector decimals) {
          decimals.vector[row] = value;
        } else {
          ((DecimalColumnVector) vector).set(row, new HiveDecimalWritable(value));
        }
      }
      case LIST -> {
        ListColumnVector list = (ListColumnVector) vector;
        list.offsets[row] = list.childCount;
        list.lengths[row] = chance.nextInt(4);
        list.childCount += list.lengths[row];
        fill(list.child, type.getChildren().get(0), (int) list.offsets[row], list.childCount, first, chance);
      }
      case MAP -> {
        MapColumnVector map = (MapColumnVector) vector;
        map.offsets[row] = map.childCount;
        map.lengths[row] = chance.nextInt(4);
        map.childCount += map.lengths[row];
        fill(map.keys, type.getChildren().get(0), (int) map.offsets[row], map.childCount, first, chance);
        fill(map.values, type.getChildren().get(1), (int) map.offsets[row], map.childCount, first, chance);
      }
      case UNION -> {
        UnionColumnVector union = (UnionColumnVector) vector;
        union.tags[row] = chance.nextInt(union.fields.length);
        fill(union.fields[union.tags[row]], type.getChildren().get(union.tags[row]), row, row + 1, first, chance);
      }
      default -> {
        if (vector instanceof BytesColumnVector shapes) {  // geometry and geography: points in WKB
          ByteBuffer point = ByteBuffer.allocate(21).order(ByteOrder.LITTLE_ENDIAN).put((byte) 1).putInt(1);
          point.putDouble(chance.nextInt(180)).putDouble(chance.nextInt(90));
          shapes.setVal(row, point.array());
        }
      }
    }
  }

  /** Those of shapes cannot print themselves where they have no bounding box, as of a column that is masked. */
  static String show(ColumnStatistics statistics) {
    return statistics instanceof GeospatialColumnStatistics shapes
        ? "count: " + shapes.getNumberOfValues() + " hasNull: " + shapes.hasNull() + " bounds: "
            + shapes.getBoundingBox() + " types: " + shapes.getGeospatialTypes()
        : statistics.toString();
  }

  static void read(String path, Keys keys) throws Exception {
    Reader reader = OrcFile.createReader(new Path(path),
        OrcFile.readerOptions(new Configuration(false)).setKeyProvider(keys));
    TypeDescription schema = reader.getSchema();
    int columns = schema.getChildren().size();
    MessageDigest[] digests = new MessageDigest[columns];
    long[] nulls = new long[columns];
    for (int c = 0; c < columns; ++c) {
      digests[c] = MessageDigest.getInstance("SHA-256");
    }
    VectorizedRowBatch batch = schema.createRowBatch();
    try (RecordReader rows = reader.rows()) {
      while (rows.nextBatch(batch)) {
        for (int c = 0; c < columns; ++c) {
          StringBuilder text = new StringBuilder();
          ColumnVector vector = batch.cols[c];
          for (int row = 0; row < batch.size; ++row) {
            vector.stringifyValue(text, row);
            text.append('\n');
            int at = vector.isRepeating ? 0 : row;
            nulls[c] += !vector.noNulls && vector.isNull[at] ? 1 : 0;
          }
          digests[c].update(text.toString().getBytes(StandardCharsets.UTF_8));
        }
      }
    }
    ColumnStatistics[] statistics = reader.getStatistics();
    for (int c = 0; c < columns; ++c) {
      TypeDescription child = schema.getChildren().get(c);
      System.out.println(String.join("\t", schema.getFieldNames().get(c),
          HexFormat.of().formatHex(digests[c].digest()), Long.toString(nulls[c]),
          show(statistics[child.getId()])));
    }
    // Of uncompressed files the reader fails on encrypted stripe statistics, those of its own writer too:
    // InStream.EncryptedStream.read returns 0, and not -1, at the end.
    boolean readable = keys == null || reader.getCompressionKind() != CompressionKind.NONE;
    for (StripeStatistics stripe : readable ? reader.getStripeStatistics() : List.<StripeStatistics>of()) {
      if (stripe.getColumnStatistics().length != schema.getMaximumId() + 1) {
        throw new IllegalStateException("stripe statistics");
      }
    }
    System.out.println("done\t" + reader.getNumberOfRows());
  }

  static void find(String path, Keys keys, String column, long value) throws Exception {
    Reader reader = OrcFile.createReader(new Path(path),
        OrcFile.readerOptions(new Configuration(false)).setKeyProvider(keys));
    SearchArgument wanted = SearchArgumentFactory.newBuilder()
        .equals(column, PredicateLeaf.Type.LONG, value).build();
    VectorizedRowBatch batch = reader.getSchema().createRowBatch();
    long seen = 0;
    StringBuilder found = new StringBuilder();
    int at = reader.getSchema().getFieldNames().indexOf(column);
    try (RecordReader rows = reader.rows(reader.options().searchArgument(wanted, new String[] {column}))) {
      while (rows.nextBatch(batch)) {
        for (int row = 0; row < batch.size; ++row) {
          ++seen;
          if (((LongColumnVector) batch.cols[at]).vector[row] == value) {
            for (ColumnVector vector : batch.cols) {
              vector.stringifyValue(found, row);
              found.append(' ');
            }
          }
        }
      }
    }
    System.out.println("found\t" + seen + "\t" + found);
  }
}
