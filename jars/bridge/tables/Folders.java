package io.sparkcrypt;

import java.net.URI;
import java.util.Locale;
import org.apache.hadoop.fs.Path;

/** Comparisons of folders by the texts of their Hadoop paths, with all schemes of one store treated alike. */
final class Folders {
  private static final String OF_RUNS = ".sparkcrypt";

  private Folders() {}

  /** Returns the text of a location in the catalog, unescaped like Hadoop's paths. */
  static String text(Object location) {
    return new Path((URI) location).toString();
  }

  /** Returns the folder beside a table's in which runs put their results. */
  static String ofRuns(String root) {
    Path path = new Path(root);
    return path.getParent() == null ? root : new Path(new Path(path.getParent(), OF_RUNS), path.getName()).toString();
  }

  static String comparable(String folder) {
    return new Path(folder).toUri().getPath();
  }

  /** Returns whether a folder is another one or below it; a folder without scheme or authority may be on any store. */
  static boolean isWithin(String folder, String root) {
    URI below = new Path(folder).toUri();
    URI other = new Path(root).toUri();
    return isAlike(scheme(below), scheme(other))
        && isAlike(below.getAuthority(), other.getAuthority())
        && (below.getPath() + "/").startsWith(other.getPath().endsWith("/") ? other.getPath() : other.getPath() + "/");
  }

  private static boolean isAlike(String first, String other) {
    return first == null || other == null || first.equals(other);
  }

  private static String scheme(URI uri) {
    String scheme = uri.getScheme() == null ? null : uri.getScheme().toLowerCase(Locale.ROOT);
    if (scheme == null) {
      return null;
    }
    return switch (scheme) {
      case "s3", "s3n" -> "s3a";
      case "abfss" -> "abfs";
      case "wasbs" -> "wasb";
      default -> scheme;
    };
  }
}
