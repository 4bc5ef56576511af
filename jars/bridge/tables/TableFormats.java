package io.sparkcrypt;

import java.util.Map;
import java.util.Optional;

/** Table formats with a log or metadata of their own, which write Parquet files and do not go by tags. */
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

  /** The format whose code a class is, or null. */
  static String ofClass(String className) {
    for (Map.Entry<String, String> entry : BY_PACKAGE.entrySet()) {
      if (className.startsWith(entry.getKey())) {
        return entry.getValue();
      }
    }
    return null;
  }

  /** The format of a data source's name, as in USING, or null. */
  static String ofProvider(String provider) {
    return BY_PROVIDER.get(provider.toLowerCase(java.util.Locale.ROOT));
  }

  /** The format whose writer asks, by the calls that led here; null for Spark's own writers. */
  static String ofCaller() {
    Optional<String> found =
        StackWalker.getInstance()
            .walk(frames -> frames.map(frame -> ofClass(frame.getClassName())).filter(one -> one != null).findFirst());
    return found.orElse(null);
  }
}
