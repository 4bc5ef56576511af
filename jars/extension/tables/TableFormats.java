package io.sparkcrypt;

import java.util.Map;
import java.util.Objects;

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
    return BY_PACKAGE.keySet().stream().filter(className::startsWith).findFirst().map(BY_PACKAGE::get).orElse(null);
  }

  /** Returns the format of a data source's name, as in USING, or null. */
  static String ofProvider(String provider) {
    return BY_PROVIDER.get(provider.toLowerCase(java.util.Locale.ROOT));
  }

  /** Returns the format whose writer is on the call stack; null for Spark's own writers. */
  static String ofCaller() {
    return StackWalker.getInstance()
        .walk(frames -> frames.map(frame -> ofClass(frame.getClassName())).filter(Objects::nonNull).findFirst().orElse(null));
  }
}
