import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import org.apache.spark.util.sketch.BloomFilter;

/** Makes filters by Spark's classes inside owners of both names, and asks them, and those of a folder, for values. */
public final class Filters {
  private Filters() {}

  /** Reads classes whatever serial version UID a stream has of them, as upstream does. */
  private static final class AnyVersion extends ObjectInputStream {
    AnyVersion(InputStream in) throws IOException {
      super(in);
    }

    @Override
    protected ObjectStreamClass readClassDescriptor() throws IOException, ClassNotFoundException {
      ObjectStreamClass read = super.readClassDescriptor();
      ObjectStreamClass local = ObjectStreamClass.lookup(Class.forName(read.getName()));
      return local != null && local.getSerialVersionUID() != read.getSerialVersionUID() ? local : read;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    List<String> put = Files.readAllLines(folder.resolve("put.txt"));
    List<String> probes = Files.readAllLines(folder.resolve("probes.txt"));
    for (BloomFilter.Version version : BloomFilter.Version.values()) {
      for (long bits : new long[] {64, 1000, 9_585, 100_000}) {
        BloomFilter filter = BloomFilter.create(version, put.size(), bits, 7);
        for (String one : put) {
          filter.put(value(one));
        }
        String name = version + "-" + bits;
        write(folder, name + "-new", new io.xskipper.index.metadata.BloomFilterMetaData(filter), filter, probes);
        write(folder, name + "-old", new com.ibm.metaindex.metadata.index.types.BloomFilterMetaData(filter), filter, probes);
      }
    }
    try (var ours = Files.newDirectoryStream(folder, "*.ours")) {
      for (Path path : ours) {
        try (ObjectInputStream in = new AnyVersion(new ByteArrayInputStream(Files.readAllBytes(path)))) {
          BloomFilter filter = ((io.xskipper.index.metadata.BloomFilterMetaData) in.readObject()).bloomFilter;
          Files.writeString(path.resolveSibling(path.getFileName() + ".answers"), answers(filter, probes));
        }
      }
    }
  }

  private static void write(Path folder, String name, Object owner, BloomFilter filter, List<String> probes)
      throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(owner);
    }
    Files.write(folder.resolve(name + ".spark"), bytes.toByteArray());
    Files.writeString(folder.resolve(name + ".spark.answers"), answers(filter, probes));
  }

  private static String answers(BloomFilter filter, List<String> probes) {
    StringBuilder found = new StringBuilder();
    for (String probe : probes) {
      found.append(filter.mightContain(value(probe)) ? '1' : '0');
    }
    return found.toString();
  }

  private static Object value(String line) {
    String text = line.substring(1);
    if (line.charAt(0) == 'L') {
      return Long.valueOf(text);
    }
    return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
  }
}
