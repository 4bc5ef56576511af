package io.sparkcrypt;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;

/**
 * A folder or file in normal form, in which its names are equal; sparkcrypt/paths.py makes the same form, and tests/places.json
 * has cases of both.
 *
 * @param scheme in lower case, one for all of a store's; null if it was not named
 * @param authority in lower case, without a default port; empty if it was not named
 * @param path without a slash at its end
 */
record Place(String scheme, String authority, String path) {
  private static final Pattern URI = Pattern.compile("([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", Pattern.DOTALL);
  private static final Map<String, String> SAME_STORE = Map.of("s3", "s3a", "s3n", "s3a", "abfss", "abfs", "wasbs", "wasb");
  private static final Map<String, String> DEFAULT_PORTS = Map.of("hdfs", ":8020", "webhdfs", ":9870", "swebhdfs", ":9871");

  /** Another name of all that is below a place. */
  record Alias(Place name, Place real) {}

  /** Returns the place that a Hadoop path's text names; nothing in it is escaped. */
  static Place of(String text) {
    Matcher match = URI.matcher(text);
    if (!match.matches()) {
      return new Place(null, "", normal(text));
    }
    String said = match.group(1).toLowerCase(Locale.ROOT);
    String scheme = SAME_STORE.getOrDefault(said, said);
    String authority = scheme.equals("file") || match.group(2) == null ? "" : match.group(2).toLowerCase(Locale.ROOT);
    String port = DEFAULT_PORTS.getOrDefault(scheme, "");
    boolean isDefault = !port.isEmpty() && authority.endsWith(port);
    authority = isDefault ? authority.substring(0, authority.length() - port.length()) : authority;
    return new Place(scheme, authority, match.group(3) == null ? "" : normal(match.group(3)));
  }

  private static String normal(String path) {
    boolean isAbsolute = path.startsWith("/");
    Deque<String> kept = new ArrayDeque<>();
    for (String name : path.split("/")) {
      if (name.equals("..") && !kept.isEmpty() && !kept.getLast().equals("..")) {
        kept.removeLast();
      } else if (!name.isEmpty() && !name.equals(".")) {
        kept.addLast(name);
      }
    }
    return (isAbsolute && !kept.isEmpty() ? "/" : "") + String.join("/", kept);
  }

  /** Returns the place by its real name, if one of these aliases names it; the longest that does counts. */
  Place without(List<Alias> aliases) {
    Alias found = null;
    for (Alias alias : aliases) {
      boolean fits = alias.name.scheme.equals(scheme) && alias.name.authority.equals(authority) && isWithin(alias.name);
      found = fits && (found == null || alias.name.path.length() > found.name.path.length()) ? alias : found;
    }
    return found == null ? this : new Place(found.real.scheme, found.real.authority, found.real.path + below(found.name));
  }

  /** Returns whether this is another place or below it; a place without scheme or authority may be on any store. */
  boolean isWithin(Place root) {
    return isAlike(root) && (path + "/").startsWith(root.path + "/");
  }

  /** Returns whether both are on one store, as far as they name it. */
  boolean isAlike(Place other) {
    boolean sameScheme = scheme == null || other.scheme == null || scheme.equals(other.scheme);
    return sameScheme && (authority.isEmpty() || other.authority.isEmpty() || authority.equals(other.authority));
  }

  /** Returns the rest of the path below a root that it is within; empty if it is the root. */
  String below(Place root) {
    return path.substring(root.path.length());
  }

  /** Returns the text of a Hadoop path. */
  String text() {
    String store = authority.isEmpty() ? "" : "//" + authority;
    return (scheme == null ? "" : scheme + ":") + store + (path.isEmpty() ? "/" : path);
  }

  /** Returns the text of a location in the catalog, unescaped like Hadoop's paths. */
  static String textOf(Object location) {
    return new Path((java.net.URI) location).toString();
  }

  /** Returns the folder beside a table's in which runs put their results. */
  static String ofRuns(String root) {
    Path folder = new Path(root);
    return folder.getParent() == null ? root : new Path(new Path(folder.getParent(), ".sparkcrypt"), folder.getName()).toString();
  }
}
