package io.sparkcrypt;

import java.util.Map;
import org.apache.hadoop.fs.Path;

/**
 * The final paths of this JVM's temporary files, for files whose temporary path does not show it.
 *
 * <p>The map is bounded. A file whose final path was evicted is written with an unknown partition, which readers accept.
 */
final class Targets {
  private static final int MOST = 65_536;
  private static final Map<String, String> FINAL_PATHS = Newest.synchronizedMap(MOST);

  private Targets() {}

  static void remember(String temporaryPath, String finalPath) {
    FINAL_PATHS.put(key(new Path(temporaryPath)), finalPath);
  }

  /** Returns the final path, or null if it is not known. */
  static String of(Path temporaryPath) {
    return FINAL_PATHS.get(key(temporaryPath));
  }

  // The commit protocol may have the path without its scheme, the writer with it.
  private static String key(Path path) {
    return path.toUri().getPath();
  }
}
