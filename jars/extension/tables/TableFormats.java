package io.sparkcrypt;

import java.util.Map;
import java.util.Optional;

/** Table formats with their own log or metadata, which write Parquet files and ignore tags. */
final class TableFormats {
  private static final Map<String, String> BY_PACKAGE =
      Map.of(
          "org.apache.spark.sql.delta.", "Delta",
          "io.delta.", "Delta",
          "org.apache.hudi.", "Hudi",
          "org.apache.spark.sql.hudi.", "Hudi",
          "org.apache.iceberg.", "Iceberg");
  private static final Map<String, String> BY_PROVIDER = Map.of("delta", "Delta", "hudi", "Hudi", "iceberg", "Iceberg");

  private TableFormats() {}

  /** Returns the format that a class belongs to, or null. */
  static String ofClass(String className) {
    for (Map.Entry<String, String> entry : BY_PACKAGE.entrySet()) {
      if (className.startsWith(entry.getKey())) {
        return entry.getValue();
      }
    }
    return null;
  }

  /** Returns the format of a data source's name, as in USING, or null. */
  static String ofProvider(String provider) {
    return BY_PROVIDER.get(provider.toLowerCase(java.util.Locale.ROOT));
  }

  /** Returns the format whose writer is on the call stack; null for Spark's own writers. */
  static String ofCaller() {
    Optional<String> found =
        StackWalker.getInstance()
            .walk(frames -> frames.map(frame -> ofClass(frame.getClassName())).filter(format -> format != null).findFirst());
    return found.orElse(null);
  }
}
