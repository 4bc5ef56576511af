package io.sparkcrypt;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Names of tagged columns that this application has read: what rows without lineage are held against. */
final class SeenTags {
  private static final int MOST = 10_000;
  private static final Newest<String, Map<String, Set<String>>> BY_NAME = new Newest<>(MOST);

  private SeenTags() {}

  /** Notes what a column of a table, or folder, carries now; nothing, where it carried something before. */
  static void note(String table, String column, Set<String> tags) {
    synchronized (BY_NAME) {
      String name = column.toLowerCase(Locale.ROOT);
      Map<String, Set<String>> seen = BY_NAME.get(name);
      if (!tags.isEmpty()) {
        BY_NAME.computeIfAbsent(name, unused -> new LinkedHashMap<>()).put(table, Set.copyOf(tags));
      } else if (seen != null) {
        seen.remove(table);
      }
    }
  }

  /** What columns of a name have lost where they are read from no table: a column that was seen with tags, and these. */
  static Carried.Lost of(String column) {
    synchronized (BY_NAME) {
      for (Map.Entry<String, Set<String>> seen : BY_NAME.getOrDefault(column.toLowerCase(Locale.ROOT), Map.of()).entrySet()) {
        return new Carried.Lost(new Carried.Origin(seen.getKey(), column), seen.getValue());
      }
      return null;
    }
  }
}
