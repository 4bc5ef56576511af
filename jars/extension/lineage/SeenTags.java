package io.sparkcrypt;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Names of tagged columns that this application has read under one policy; rows without lineage are compared with them. */
final class SeenTags {
  private static final int MOST_NAMES = 10_000;
  private static final int MOST_TABLES = 1_000;
  private static final int MOST_POLICIES = 100;
  private static final Map<String, SeenTags> BY_POLICY = Newest.shared(MOST_POLICIES);

  private final Newest<String, Map<String, Set<String>>> byName = new Newest<>(MOST_NAMES);

  private SeenTags() {}

  static SeenTags under(SessionPolicy policy) {
    return BY_POLICY.computeIfAbsent(policy.text(), unused -> new SeenTags());
  }

  /** Records the current tags of a column of a table or folder; a column without tags is forgotten. */
  synchronized void note(String table, String column, Set<String> tags) {
    String name = column.toLowerCase(Locale.ROOT);
    Map<String, Set<String>> seen = byName.get(name);
    if (seen != null) {
      seen.remove(table); // the table read last comes last
    }
    if (!tags.isEmpty()) {
      byName.computeIfAbsent(name, unused -> new Newest<>(MOST_TABLES)).put(table, Set.copyOf(tags));
    }
  }

  /**
   * Returns the tags that a column of no table may have lost: for each set of tags that was seen, with the column last read with
   * it.
   */
  synchronized Collection<Carried.Lost> of(String column) {
    Map<Set<String>, Carried.Lost> byTags = new LinkedHashMap<>();
    byName
        .getOrDefault(column.toLowerCase(Locale.ROOT), Map.of())
        .forEach((table, tags) -> byTags.put(tags, new Carried.Lost(new Carried.Origin(table, column), tags)));
    return List.copyOf(byTags.values());
  }
}
