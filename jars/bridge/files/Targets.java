package io.sparkcrypt;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.fs.Path;

/**
 * Where temporary files of this JVM will be moved, for those whose own path does not show it.
 *
 * <p>Bounded: a file whose target was forgotten is written as one that does not know its partition, which readers take.
 */
final class Targets {
  private static final int MOST = 65_536;

  private static final Map<String, String> FINAL_PATHS =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
          return size() > MOST;
        }
      };

  private Targets() {}

  static void remember(String temporaryPath, String finalPath) {
    synchronized (FINAL_PATHS) {
      FINAL_PATHS.put(key(new Path(temporaryPath)), finalPath);
    }
  }

  /** The final path, or null where it is not known. */
  static String of(Path temporaryPath) {
    synchronized (FINAL_PATHS) {
      return FINAL_PATHS.get(key(temporaryPath));
    }
  }

  // The commit protocol may have the path without its scheme, the writer with it.
  private static String key(Path path) {
    return path.toUri().getPath();
  }
}
